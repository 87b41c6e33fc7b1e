"""Keys and values between bytes and typed columns, without Python: what a serde reads and writes, as Catalyst computes
it. It owns how strictly JSON is read and how it is written; which columns there are, native.py knows.

JSON is read as strictly as Python reads it, which takes some care: Spark takes a number for text and a missing field
for null, and does not look beyond the end. So what must not be null is looked at. An input that is what was read, in a
usual spelling, is sound. Else a flat object without escapes ends with its only brace, and its texts stand behind their
names. Any other input becomes the field `value` of an object that has an `end`; and where it is not clear that a text
stands in quotes, all are read again, as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater.dsl.serde import Bytes, Int64, Json, Serde, Str
from headwater.streams.spark.catalyst import NotNative, Typed, schema_of, timestamp_to_text

__all__ = [
    "Check",
    "all_of",
    "checked",
    "decoded_long",
    "encoded_long",
    "holds_type",
    "read",
    "show",
    "show_written",
    "write",
]

# What must hold of a record, and what is said if it does not.
Check = tuple[Column, Column]

# No field of a class has such a name.
_CORRUPT = "not JSON"
_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "allowNumericLeadingZeros": "false",
}
_INFINITY = float("inf")
_MOST_FIELDS = 100


def decoded_long(raw: Column) -> Column:
    """The number in eight bytes."""
    return F.conv(F.hex(raw), 16, -10).cast("long")


def encoded_long(number: Column) -> Column:
    """A number in eight bytes."""
    return F.unhex(F.lpad(F.hex(number), 16, "0"))


def _fail(kind: T.DataType, told: Column) -> Column:
    """What, when it is computed, ends the query with a StreamsError; as a column of some type."""
    # In two parts: Spark's errors show the plan too, and whoever looks for the error by its name is not to find that.
    return F.raise_error(F.concat(F.lit("headwater.errors."), F.lit("StreamsError: "), told)).cast(kind)


def checked(column: Column, kind: T.DataType, checks: Sequence[Check]) -> Column:
    """A column of some type, or the end of the query, with what the first check says that does not hold."""
    *before, (_, told) = checks
    for holds, earlier in reversed(before):
        told = F.when(holds, told).otherwise(earlier)
    return F.when(all_of(holds for holds, _ in checks), column).otherwise(_fail(kind, told))


def holds_type(kind: T.DataType, sought: type[T.DataType]) -> bool:
    """Whether a type is, or has as a part, another one."""
    if isinstance(kind, sought):
        return True
    match kind:
        case T.StructType():
            return any(holds_type(field.dataType, sought) for field in kind.fields)
        case T.ArrayType():
            return holds_type(kind.elementType, sought)
        case T.MapType():
            return holds_type(kind.valueType, sought)
    return False


def all_of(conditions: Iterable[Column]) -> Column:
    """That all of them hold; halved again and again, because Spark goes down a tree by recursion."""
    match list(conditions):
        case []:
            return F.lit(True)
        case [one]:
            return one
        case many:
            half = len(many) // 2
            return all_of(many[:half]) & all_of(many[half:])


# ---- reading -----------------------------------------------------------------------------------------------------


def read(raw: Column, serde: Serde) -> tuple[Typed, Column | None]:
    """What a serde reads from bytes, and whether they can be read (None: always); only for bytes that are not null.

    Raises NotNative.
    """
    kind = schema_of(serde)
    if kind is None:
        raise NotNative(f"{serde!r} declares no type that Spark has: give one, as Json(type=Order)")
    if type(serde) is Bytes:
        return Typed(raw, kind), None
    if type(serde) is Str:
        return Typed(F.make_valid_utf8(raw.cast("string")), kind), None
    if type(serde) is Int64:
        # Of more bytes than eight Spark cannot make a number, and ends the query without saying where.
        is_long = F.octet_length(raw) == 8
        return Typed(F.when(is_long, decoded_long(raw)), kind), is_long
    if type(serde) is Json:
        return _read_json(raw, kind, msgspec.inspect.type_info(serde.type))
    raise NotNative(f"Spark does not read {serde!r} as Python does")


def _read_json(raw: Column, kind: T.DataType, declared: msgspec.inspect.Type) -> tuple[Typed, Column]:
    if _may_be_null(declared):
        raise NotNative(f"{kind.simpleString()} or null: Spark does not tell a value that is null from none")
    text = raw.cast("string")
    framed = F.concat(F.lit('{"value":'), text, F.lit(',"end":true}'))
    conditions = [F.is_valid_utf8(text)] if holds_type(kind, T.MapType) else []
    # To be told what could not be read costs time, and where nothing may be null a null tells it too.
    is_told = not _is_all_there(declared)
    if isinstance(kind, T.StructType) and _is_flat(kind):
        parsed = value = _from_json(text, kind, is_told)
        before_end = F.substring(raw, F.lit(1), F.octet_length(raw) - 1).cast("string")
        clear = [text.endswith("}"), ~before_end.contains("}"), *_fields_quoted(text, value, kind)]
    else:
        parsed = _from_json(framed, _framed(kind), is_told)
        value = parsed.getField("value")
        clear = [parsed.getField("end"), *_texts_quoted(text, value, kind)]
    conditions += [*([parsed.getField(_CORRUPT).isNull()] if is_told else []), *_required(value, declared)]

    def is_exact(read: Column) -> Column:
        texts = _texts(read.getField("value"), kind, lambda leaf: F.schema_of_variant(leaf).isin("STRING", "VOID"))
        return all_of([read.getField("end"), read.getField(_CORRUPT).isNull(), F.is_valid_utf8(text), *texts])

    # In an array, so that it is read once for all that is asked of it.
    again = F.forall(F.array(_from_json(framed, _framed(_open(kind)), True)), is_exact)
    # Not `|`: Spark computes what stands several times in it before it looks at its left side.
    is_clear = F.when(all_of([~text.contains("\\"), *clear]), F.lit(True)).otherwise(again)
    for spelling in _spellings(value, kind):
        is_clear = F.when(text == spelling, F.lit(True)).otherwise(is_clear)
    conditions.append(is_clear)
    return Typed(value, kind), F.coalesce(all_of(conditions), F.lit(False))


def _spellings(value: Column, kind: T.DataType) -> Iterator[Column]:
    """An object of texts, integers and booleans as most programs write it; null if a field is."""
    plain = (T.StringType, T.LongType, T.BooleanType)
    if not isinstance(kind, T.StructType) or not all(isinstance(field.dataType, plain) for field in kind.fields):
        return
    for comma, colon in ((", ", ": "), (",", ":")):
        parts, before = [], "{"
        for field in kind.fields:
            quote = '"' if isinstance(field.dataType, T.StringType) else ""
            parts += [F.lit(f'{before}"{field.name}"{colon}{quote}'), value.getField(field.name).cast("string")]
            before = quote + comma
        yield F.concat(*parts, F.lit(before.removesuffix(comma) + "}"))


def _fields_quoted(text: Column, value: Column, kind: T.StructType) -> Iterator[Column]:
    """That a flat object's texts stand behind their names in the input, in quotes; it has no escapes."""
    for field in kind.fields:
        leaf = value.getField(field.name)
        if isinstance(field.dataType, T.StringType):
            found = [
                F.contains(text, F.concat(F.lit(f'"{field.name}"{colon}"'), leaf, F.lit('"')))
                for colon in (":", ": ", " : ")
            ]
            yield leaf.isNull() | reduce(or_, found)
        else:
            yield from _texts_quoted(text, leaf, field.dataType)


def _texts_quoted(text: Column, value: Column, kind: T.DataType) -> Iterator[Column]:
    """That what was read as text stands in quotes in the input, somewhere."""

    def is_quoted(leaf: Column) -> Column:
        # What is no UTF-8 becomes the replacement character.
        return F.contains(text, F.concat(F.lit('"'), leaf, F.lit('"'))) & ~leaf.contains("\ufffd")

    return _texts(value, kind, is_quoted)


def _is_flat(kind: T.StructType) -> bool:
    """Whether JSON of it has no brace before its end, but in texts."""
    return not any(holds_type(field.dataType, inner) for field in kind.fields for inner in (T.StructType, T.MapType))


def _framed(kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("value", kind), T.StructField("end", T.BooleanType())])


def _from_json(text: Column, kind: T.StructType, is_told: bool) -> Column:
    """What was read, with what could not be if that is to be told."""
    told = [T.StructField(_CORRUPT, T.StringType())] if is_told else []
    return F.from_json(text, T.StructType([*kind.fields, *told]), _JSON)


def _open(kind: T.DataType) -> T.DataType:
    """A type that keeps what stands in a text's place."""
    match kind:
        case T.StringType():
            return T.VariantType()
        case T.StructType():
            return T.StructType([T.StructField(field.name, _open(field.dataType)) for field in kind.fields])
        case T.ArrayType():
            return T.ArrayType(_open(kind.elementType))
        case T.MapType():
            return T.MapType(kind.keyType, _open(kind.valueType))
    return kind


def _texts(column: Column, kind: T.DataType, test: Callable[[Column], Column]) -> Iterator[Column]:
    """That each text in a column is null or stands a test."""
    match kind:
        case T.StringType():
            yield column.isNull() | test(column)
        case T.StructType():
            for field in kind.fields:
                yield from _texts(column.getField(field.name), field.dataType, test)
        case T.ArrayType() if holds_type(kind, T.StringType):
            yield column.isNull() | F.forall(column, lambda item: all_of(_texts(item, kind.elementType, test)))
        case T.MapType() if holds_type(kind, T.StringType):
            yield from _texts(F.map_values(column), T.ArrayType(kind.valueType), test)


def _required(column: Column, declared: msgspec.inspect.Type) -> Iterator[Column]:
    """That what must be there is; of parts only if there is what they are part of."""
    if not _may_be_null(declared):
        yield column.isNotNull()
    inner = list(_required_inside(column, _present(declared)))
    if inner:
        yield column.isNull() | all_of(inner)


def _required_inside(column: Column, declared: Any) -> Iterator[Column]:
    match declared:
        case msgspec.inspect.FloatType():
            yield F.abs(column) != _INFINITY
        case msgspec.inspect.DateTimeType():
            raise NotNative("Python keeps a datetime's zone, Spark does not: read it as str and cast() it")
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            yield F.forall(column, lambda item: all_of(_required(item, declared.item_type)))
        case msgspec.inspect.DictType():
            yield F.forall(F.map_values(column), lambda item: all_of(_required(item, declared.value_type)))
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType() | msgspec.inspect.TypedDictType():
            _check_class(declared)
            for field in declared.fields:
                yield from _required(column.getField(field.name), field.type)


def _check_class(declared: Any) -> None:
    """Refuse a class that Python would read or write otherwise than by its fields' types."""
    name = declared.cls.__name__
    if hasattr(declared.cls, "__post_init__"):
        raise NotNative(f"{name}.__post_init__ is Python's")
    if isinstance(declared, msgspec.inspect.StructType) and declared.cls.__struct_config__.omit_defaults:
        raise NotNative(f"{name} leaves out what is at its default when it is written")
    if len(declared.fields) > _MOST_FIELDS:
        raise NotNative(f"{name} has {len(declared.fields)} fields: Spark plans too long for over {_MOST_FIELDS}")
    names = [field.name.lower() for field in declared.fields]
    if len(names) > len(set(names)):
        raise NotNative(f"{name} has fields that differ in case only, which Spark does not tell apart")
    for field in declared.fields:
        if not field.required and (field.default is not None or not _may_be_null(field.type)):
            raise NotNative(f"{name}.{field.name} has a default, which Spark does not know")


def _may_be_null(declared: msgspec.inspect.Type) -> bool:
    return isinstance(declared, msgspec.inspect.UnionType) and declared.includes_none


def _is_all_there(declared: Any) -> bool:
    """Whether nothing in it may be null, and there is something."""
    match declared:
        case msgspec.inspect.UnionType():
            return False
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return _is_all_there(declared.item_type)
        case msgspec.inspect.DictType():
            return _is_all_there(declared.value_type)
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType() | msgspec.inspect.TypedDictType():
            return bool(declared.fields) and all(_is_all_there(field.type) for field in declared.fields)
    return True


def _present(declared: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """A type without null, which is the one thing that schema_of lets be in a union besides."""
    if not isinstance(declared, msgspec.inspect.UnionType):
        return declared
    (kind,) = [one for one in declared.types if not isinstance(one, msgspec.inspect.NoneType)]
    return kind


# ---- writing -----------------------------------------------------------------------------------------------------


def write(typed: Typed, serde: Serde, *, is_key: bool = False) -> Column:
    """The bytes that a serde writes of a column. Raises NotNative."""
    shown = show(typed, serde, is_key=is_key)
    return encoded_long(shown) if type(serde) is Int64 else shown.cast("binary")


def show(typed: Typed, serde: Serde, *, is_key: bool = False) -> Column:
    """What a serde writes of a column, as a DataFrame shows it: text, a number, or bytes. Raises NotNative."""
    taken = {Str: T.StringType(), Int64: T.LongType(), Bytes: T.BinaryType()}
    if taken.get(type(serde)) == typed.type:
        return typed.column
    if type(serde) is not Json:
        raise NotNative(f"{serde!r} does not write {typed.type.simpleString()} in Catalyst")
    if is_key and holds_type(typed.type, T.DoubleType):
        # Keys are compared, and sent to partitions, by their bytes.
        raise NotNative("a double in a key, which Java writes in another form: cast() it to a long or a string")
    return _json(typed)


def show_written(raw: Column, serde: Serde) -> Column:
    """The same of what a serde has written."""
    if type(serde) is Int64:
        return decoded_long(raw)
    return raw.cast("string") if type(serde) in (Str, Json) else raw


def _json(typed: Typed) -> Column:
    made = _plain(typed.column, typed.type)
    if isinstance(typed.type, T.StructType | T.MapType | T.ArrayType):
        return F.to_json(made, {"ignoreNullFields": "false"})
    # Spark writes no single values; in an array they are between its brackets.
    text = F.to_json(F.array(made), {"ignoreNullFields": "false"})
    return F.when(typed.column.isNotNull(), F.substring(text, F.lit(2), F.length(text) - 2))


def _plain(column: Column, kind: T.DataType) -> Column:
    """What JSON can hold, as Python writes it: times as text; NaN is an error."""
    match kind:
        case T.DoubleType():
            endless = F.isnan(column) | (F.abs(column) == _INFINITY)
            fault = _fail(kind, F.lit("JSON has no NaN and no infinity; replace them, for example by null"))
            return F.when(endless, fault).otherwise(column)
        case T.TimestampType():
            return timestamp_to_text(column)
        case T.StructType():
            fields = [_plain(column.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
            return F.when(column.isNotNull(), F.struct(*fields))
        case T.ArrayType() | T.MapType() if _is_plain(kind):
            return column
        case T.ArrayType():
            return F.transform(column, lambda item: _plain(item, kind.elementType))
        case T.MapType():
            return F.transform_values(column, lambda key, item: _plain(item, kind.valueType))
        case T.LongType() | T.StringType() | T.BooleanType():
            return column
        case T.NullType():
            return column.cast("string")
    raise NotNative(f"JSON of {kind.simpleString()} is written by Python")


def _is_plain(kind: T.DataType) -> bool:
    return not any(holds_type(kind, other) for other in (T.DoubleType, T.TimestampType, T.BinaryType, T.NullType))
