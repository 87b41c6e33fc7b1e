"""The Catalyst compiler of expressions: the same tree that Python computes, as a Spark column over typed columns. It
owns which expressions run there (`NotNative` says why one does not; it then runs in Python), and the Spark types of
serdes. What an expression means is `dsl/expression_values.py`; here every function must agree with it.

Nothing depends on the session: overflow, division and casts go through the `try_` functions, which do not ask for ANSI
mode, and dates are computed from microseconds, without a time zone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.dsl.expression_code import ExpressionFunction
from headwater.dsl.expression_nodes import Call, Cast, Item, Literal, Node, Record, Struct, When
from headwater.dsl.expression_values import DOUBLE_TEXT, EPOCH, LONG_TEXT, MICROSECOND, TIMESTAMP_TEXT
from headwater.dsl.expressions import Expression
from headwater.dsl.serde import Bytes, Float64, Int64, Json, Serde, Str

__all__ = ["NotNative", "Typed", "schema_of", "timestamp_to_text", "to_catalyst"]

LONG, DOUBLE, STRING, BOOLEAN = LongType(), DoubleType(), StringType(), BooleanType()
TIMESTAMP, BINARY, NULL = TimestampType(), BinaryType(), NullType()
_KINDS = {"long": LONG, "double": DOUBLE, "string": STRING, "boolean": BOOLEAN, "timestamp": TIMESTAMP}
_NUMBERS = (LONG, DOUBLE)
_SCALARS = (LONG, DOUBLE, STRING, BOOLEAN, TIMESTAMP, BINARY)


class NotNative(Exception):
    """Catalyst cannot compute an expression as Python does; the text says what stands in the way."""


@dataclass(frozen=True)
class Typed:
    """A column and its type, which must be known: what an expression means depends on it."""

    column: Column
    type: DataType


def to_catalyst(
    expression: Expression | ExpressionFunction | Node,
    value: Typed | None = None,
    key: Typed | None = None,
    timestamp: Column | None = None,
) -> Typed:
    """The expression over the columns of a record; `timestamp` is in milliseconds. Raises NotNative.

    A filter keeps the rows where the column is true; the opposite one those where `coalesce(column, false)` is false.
    """
    node: Node
    predicate = False
    if isinstance(expression, Expression):
        node = expression._node
    elif isinstance(expression, ExpressionFunction):
        node, predicate = expression.node, expression.predicate
    else:
        node = expression
    record = {"value": value, "key": key, "timestamp": None if timestamp is None else Typed(timestamp, LONG)}
    result = _Compiler(record).compile(node)
    if predicate and result.type not in (BOOLEAN, NULL):
        raise NotNative(f"{node} is a condition, but of type {_shown(result)}")
    return _as(result, BOOLEAN) if predicate else result


class _Compiler:
    def __init__(self, record: dict[str, Typed | None]) -> None:
        self._record = record

    def compile(self, node: Node) -> Typed:
        match node:
            case Record():
                return _normal(_whole(self._part(node)))
            case Literal():
                return _literal(node.value)
            case Item():
                return _item(self._part(node.of) if isinstance(node.of, Record) else self.compile(node.of), node)
            case Cast():
                return _cast(self.compile(node.of), node)
            case When():
                return self._when(node)
            case Struct():
                return self._struct(node)
            case Call():
                arguments = [self.compile(argument) for argument in node.arguments]
                return FUNCTIONS[node.function](node, arguments)
        raise TypeError(f"not a node: {node!r}")

    def _part(self, node: Record) -> Typed:
        found = self._record[node.part]
        if found is None:
            raise NotNative(f"the type of {node} is not declared")
        return found

    def _when(self, node: When) -> Typed:
        conditions = [self.compile(condition) for condition, _ in node.branches]
        _need(node, conditions, BOOLEAN)
        results = [self.compile(result) for result in (*(r for _, r in node.branches), node.otherwise)]
        kind = _one_type(node, results)
        column: Any = F
        for condition, result in zip(conditions, results, strict=False):
            column = column.when(_as(condition, BOOLEAN).column, _as(result, kind).column)
        return Typed(column.otherwise(_as(results[-1], kind).column), kind)

    def _struct(self, node: Struct) -> Typed:
        value = self._record["value"]
        if value is None:
            raise NotNative("the type of the value is not declared")
        fields: dict[str, Typed] = {}
        if node.keep:
            if not isinstance(value.type, StructType):
                raise NotNative(f"with_columns() takes a struct, not {_shown(value)}")
            fields = {name: _item(value, Item(Record("value"), name)) for name in value.type.fieldNames()}
        fields |= {name: self.compile(field) for name, field in node.fields}
        kind = StructType([StructField(name, field.type) for name, field in fields.items()])
        made = F.struct(*(field.column.alias(name) for name, field in fields.items()))
        return Typed(F.when(value.column.isNotNull(), made), kind)


# ---- types -----------------------------------------------------------------------------------------------------------


def _shown(typed: Typed) -> str:
    return typed.type.simpleString()


def _whole(typed: Typed) -> Typed:
    """A struct with its own fields alone: the one a record was read as has what its reader needed besides."""
    if not isinstance(typed.type, StructType):
        return typed
    fields = [typed.column.getField(name).alias(name) for name in typed.type.fieldNames()]
    return Typed(F.when(typed.column.isNotNull(), F.struct(*fields)), typed.type)


def _normal(typed: Typed) -> Typed:
    """Integers as longs and floats as doubles: the only numbers there are."""
    if isinstance(typed.type, ByteType | ShortType | IntegerType):
        return Typed(typed.column.cast(LONG), LONG)
    return Typed(typed.column.cast(DOUBLE), DOUBLE) if isinstance(typed.type, FloatType) else typed


def _as(typed: Typed, kind: DataType) -> Typed:
    """The same as a type that it can be without loss of meaning: null as any, a long as a double."""
    return typed if typed.type == kind else Typed(typed.column.cast(kind), kind)


def _need(node: Node, arguments: Sequence[Typed], kind: DataType) -> None:
    for argument in arguments:
        if argument.type not in (kind, NULL):
            raise NotNative(f"{node} takes {kind.simpleString()}, not {_shown(argument)}")


def _one_type(node: Node, results: Sequence[Typed]) -> DataType:
    kinds = {result.type.json(): result.type for result in results if result.type != NULL}
    if len(kinds) > 1:
        shown = " and ".join(sorted(kind.simpleString() for kind in kinds.values()))
        raise NotNative(f"{node} gives {shown}, and a column has one type: cast() them alike")
    return next(iter(kinds.values()), NULL)


def _literal(value: Any) -> Typed:
    if isinstance(value, datetime):
        return Typed(F.timestamp_micros(F.lit((value - EPOCH) // MICROSECOND)), TIMESTAMP)
    kind = {bool: BOOLEAN, int: LONG, float: DOUBLE, str: STRING, type(None): NULL}[type(value)]
    return Typed(F.lit(value) if kind == NULL else F.lit(value).cast(kind), kind)


def _item(of: Typed, node: Item) -> Typed:
    name, kind = node.name, of.type
    if isinstance(kind, StructType) and isinstance(name, str):
        if name not in kind.fieldNames():
            raise NotNative(f"{node}: there is no such field in {_shown(of)}")
        if [field.lower() for field in kind.fieldNames()].count(name.lower()) > 1:
            raise NotNative(f"{node}: Spark does not tell fields apart that differ in case only")
        return _normal(Typed(of.column.getField(name), kind[name].dataType))
    if isinstance(kind, MapType) and isinstance(name, str) and kind.keyType == STRING:
        return _normal(Typed(F.try_element_at(of.column, F.lit(name)), kind.valueType))
    if isinstance(kind, ArrayType) and isinstance(name, int):
        place = name if name < 0 else name + 1
        return _normal(Typed(F.try_element_at(of.column, F.lit(place)), kind.elementType))
    if kind == NULL:
        return of
    raise NotNative(f"{node}: {_shown(of)} has no such part")


# ---- functions -------------------------------------------------------------------------------------------------------

Rule = Callable[[Call, list[Typed]], Typed]


def _numbers(node: Call, arguments: Sequence[Typed]) -> list[Typed]:
    """The arguments as longs, or all as doubles if one is."""
    for argument in arguments:
        if argument.type not in (*_NUMBERS, NULL):
            raise NotNative(f"{node} takes numbers, not {_shown(argument)}")
    kind = DOUBLE if any(argument.type == DOUBLE for argument in arguments) else LONG
    return [_as(argument, kind) for argument in arguments]


def _arithmetic(on_longs: Callable[..., Column], on_doubles: Callable[..., Column]) -> Rule:
    def rule(node: Call, arguments: list[Typed]) -> Typed:
        if all(argument.type == NULL for argument in arguments):
            return arguments[0]
        numbers = _numbers(node, arguments)
        kind = numbers[0].type
        f = on_longs if kind == LONG else on_doubles
        return Typed(f(*(number.column for number in numbers)), kind)

    return rule


def _kept(f: Callable[..., Column]) -> Callable[..., Column]:
    """An operation on longs that Spark's optimizer leaves alone.

    It adds up the constants of `(a + 1) + 2` first, also where the inner sum is null because it does not fit.
    """
    return lambda *numbers: f(*numbers).bitwiseOR(_long(0))


def _case(f: Callable[[Column], Column]) -> Callable[[Column], Column]:
    """Upper or lower case that the optimizer leaves alone: it takes only the outer of two, but ß becomes ss by both."""
    return lambda text: F.replace(f(text), F.lit(""), F.lit(""))


def _divide(node: Call, arguments: list[Typed]) -> Typed:
    a, b = (_as(number, DOUBLE) for number in _numbers(node, arguments))
    return Typed(F.try_divide(a.column, b.column), DOUBLE)


def _negative_long(a: Column) -> Column:
    return F.try_subtract(F.lit(0).cast(LONG), a)


def _absolute_long(a: Column) -> Column:
    return F.when(a < 0, _negative_long(a)).otherwise(a)


def _is_nan(node: Call, arguments: list[Typed]) -> Typed:
    number = _as(_numbers(node, arguments)[0], DOUBLE).column
    return Typed(F.when(number.isNotNull(), F.isnan(number)), BOOLEAN)


def _alike(node: Call, arguments: Sequence[Typed]) -> list[Column]:
    """Values that can be compared, as columns of one type."""
    kinds = [argument.type for argument in arguments if argument.type != NULL]
    if all(kind in _NUMBERS for kind in kinds):
        return [number.column for number in _numbers(node, arguments)]
    kind = kinds[0]
    if kind not in _SCALARS or any(other != kind for other in kinds):
        raise NotNative(f"{node} compares {' with '.join(k.simpleString() for k in kinds)}: cast() them alike")
    return [_as(argument, kind).column for argument in arguments]


def _comparison(compare: Callable[[Column, Column], Column]) -> Rule:
    def rule(node: Call, arguments: list[Typed]) -> Typed:
        a, b = _alike(node, arguments)
        return Typed(compare(a, b), BOOLEAN)

    return rule


def _isin(node: Call, arguments: list[Typed]) -> Typed:
    value, *choices = _alike(node, arguments)
    # Not Spark's own: that looks up many doubles by their bits, in which 0.0 and -0.0 differ.
    return Typed(functools.reduce(operator.or_, (value == choice for choice in choices)), BOOLEAN)


def _boolean(f: Callable[..., Column]) -> Rule:
    def rule(node: Call, arguments: list[Typed]) -> Typed:
        _need(node, arguments, BOOLEAN)
        return Typed(f(*(_as(argument, BOOLEAN).column for argument in arguments)), BOOLEAN)

    return rule


def _on_any(f: Callable[[Column], Column]) -> Rule:
    return lambda node, arguments: Typed(f(arguments[0].column), BOOLEAN)


def _coalesce(node: Call, arguments: list[Typed]) -> Typed:
    kind = _one_type(node, arguments)
    return Typed(F.coalesce(*(_as(argument, kind).column for argument in arguments)), kind)


def _on_strings(f: Callable[..., Column], gives: DataType) -> Rule:
    def rule(node: Call, arguments: list[Typed]) -> Typed:
        _need(node, arguments, STRING)
        return Typed(f(*(_as(argument, STRING).column for argument in arguments)), gives)

    return rule


def _substr(node: Call, arguments: list[Typed]) -> Typed:
    _, start, length = node.arguments
    assert isinstance(start, Literal)
    assert isinstance(length, Literal)
    _need(node, arguments[:1], STRING)
    return Typed(F.substring(_as(arguments[0], STRING).column, start.value, length.value), STRING)


def _like(node: Call, arguments: list[Typed]) -> Typed:
    pattern = node.arguments[1]
    assert isinstance(pattern, Literal)
    _need(node, arguments[:1], STRING)
    return Typed(_as(arguments[0], STRING).column.like(pattern.value), BOOLEAN)


# ---- timestamps: instants as microseconds, so that the session's time zone plays no part -----------------------------

_DAY = 86_400_000_000
_SIZES = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY, "week": 7 * _DAY}
_FIRST_MONDAY = -3 * _DAY
_LEAST = (datetime.min.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // MICROSECOND
_MOST = (datetime.max.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // MICROSECOND


def _long(number: int) -> Column:
    return F.lit(number).cast(LONG)


def _floor_div(a: Column, size: int) -> Column:
    return F.call_function("div", a - F.pmod(a, _long(size)), _long(size))


def _date(microseconds: Column) -> Column:
    return F.date_from_unix_date(_floor_div(microseconds, _DAY).cast("int"))


def _at_day(date: Column) -> Column:
    return F.unix_date(date).cast(LONG) * _long(_DAY)


def _of_timestamp(f: Callable[[Column], Column]) -> Rule:
    """A part of a timestamp, from its microseconds."""

    def rule(node: Call, arguments: list[Typed]) -> Typed:
        _need(node, arguments, TIMESTAMP)
        return Typed(f(F.unix_micros(_as(arguments[0], TIMESTAMP).column)).cast(LONG), LONG)

    return rule


def _clock_part(size: int, count: int) -> Callable[[Column], Column]:
    return lambda microseconds: F.pmod(_floor_div(microseconds, size), _long(count))


def _trunc(node: Call, arguments: list[Typed]) -> Typed:
    unit = node.arguments[1]
    assert isinstance(unit, Literal)
    _need(node, arguments[:1], TIMESTAMP)
    microseconds = F.unix_micros(_as(arguments[0], TIMESTAMP).column)
    if unit.value in ("year", "month"):
        begin = _at_day(F.trunc(_date(microseconds), unit.value))
    else:
        first = _long(_FIRST_MONDAY if unit.value == "week" else 0)
        begin = microseconds - F.pmod(microseconds - first, _long(_SIZES[unit.value]))
    return Typed(F.timestamp_micros(begin), TIMESTAMP)


FUNCTIONS: dict[str, Rule] = {
    "add": _arithmetic(_kept(F.try_add), operator.add),
    "subtract": _arithmetic(F.try_subtract, operator.sub),
    "multiply": _arithmetic(_kept(F.try_multiply), operator.mul),
    "divide": _divide,
    "modulo": _arithmetic(F.try_mod, F.try_mod),
    "negative": _arithmetic(_negative_long, operator.neg),
    "abs": _arithmetic(_absolute_long, F.abs),
    "is_nan": _is_nan,
    "equal": _comparison(operator.eq),
    "not_equal": _comparison(operator.ne),
    "less": _comparison(operator.lt),
    "less_equal": _comparison(operator.le),
    "greater": _comparison(operator.gt),
    "greater_equal": _comparison(operator.ge),
    "isin": _isin,
    "and": _boolean(operator.and_),
    "or": _boolean(operator.or_),
    "not": _boolean(operator.invert),
    "is_null": _on_any(Column.isNull),
    "is_not_null": _on_any(Column.isNotNull),
    "coalesce": _coalesce,
    "upper": _on_strings(_case(F.upper), STRING),
    "lower": _on_strings(_case(F.lower), STRING),
    "length": _on_strings(lambda text: F.length(text).cast(LONG), LONG),
    "trim": _on_strings(F.trim, STRING),
    "substr": _substr,
    "contains": _on_strings(F.contains, BOOLEAN),
    "startswith": _on_strings(F.startswith, BOOLEAN),
    "endswith": _on_strings(F.endswith, BOOLEAN),
    "like": _like,
    "replace": _on_strings(F.replace, STRING),
    "concat": _on_strings(F.concat, STRING),
    "year": _of_timestamp(lambda microseconds: F.year(_date(microseconds))),
    "month": _of_timestamp(lambda microseconds: F.month(_date(microseconds))),
    "day": _of_timestamp(lambda microseconds: F.dayofmonth(_date(microseconds))),
    "hour": _of_timestamp(_clock_part(_SIZES["hour"], 24)),
    "minute": _of_timestamp(_clock_part(_SIZES["minute"], 60)),
    "second": _of_timestamp(_clock_part(_SIZES["second"], 60)),
    "trunc": _trunc,
}


# ---- casts -----------------------------------------------------------------------------------------------------------


def _cast(of: Typed, node: Cast) -> Typed:
    kind = _KINDS[node.to]
    if of.type in (kind, NULL):
        return _as(of, kind)
    rule = _CASTS.get((of.type.typeName(), node.to))
    if rule is None:
        raise NotNative(f"{node}: Spark does not make {node.to} of {_shown(of)} as Python does")
    return Typed(rule(of.column), kind)


def _where(condition: Column, result: Column) -> Column:
    return F.when(condition, result)


def _text(column: Column, pattern: str) -> tuple[Column, Column]:
    """Text without the spaces around it, and whether it then fits a pattern."""
    text = F.trim(column)
    return text, text.rlike(rf"\A(?:{pattern})\z")


def _text_to_long(column: Column) -> Column:
    text, fits = _text(column, LONG_TEXT)
    return _where(fits, text.try_cast(LONG))


def _text_to_double(column: Column) -> Column:
    text, fits = _text(column, DOUBLE_TEXT)
    return _where(fits, text.try_cast(DOUBLE))


def _text_to_boolean(column: Column) -> Column:
    text = F.lower(F.trim(column))
    return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))


def _text_to_timestamp(column: Column) -> Column:
    text, fits = _text(column, TIMESTAMP_TEXT)
    zoned = F.when(text.rlike(r"(Z|[+-][0-9]{2}:[0-9]{2})\z"), text)
    zoned = zoned.when(F.length(text) == 10, F.concat(text, F.lit("T00:00:00Z"))).otherwise(F.concat(text, F.lit("Z")))
    moment = zoned.try_cast(TIMESTAMP)
    in_range = F.unix_micros(moment).between(_long(_LEAST), _long(_MOST))
    return _where(fits & ~text.startswith("0000") & in_range, moment)


def _double_to_long(column: Column) -> Column:
    # The largest double below 2**63 fits; that itself would be taken for the largest long.
    return _where(column < F.lit(2.0**63), column.try_cast(LONG))


def _long_to_timestamp(column: Column) -> Column:
    fits = column.between(_long(_LEAST // 1000), _long(_MOST // 1000))
    return _where(fits, F.timestamp_millis(column))


def timestamp_to_text(column: Column) -> Column:
    """A timestamp as text: in UTC, to the microsecond, as Python writes it."""
    microseconds = F.unix_micros(column)

    def digits(part: Column, count: int) -> Column:
        return F.lpad(part.cast(STRING), count, "0")

    parts = (("hour", 24), ("minute", 60), ("second", 60))
    clock = [digits(_clock_part(_SIZES[unit], count)(microseconds), 2) for unit, count in parts]
    fraction = F.pmod(microseconds, _long(1_000_000))
    tail = F.when(fraction == 0, F.lit("Z")).otherwise(F.concat(F.lit("."), digits(fraction, 6), F.lit("Z")))
    date = _date(microseconds).cast(STRING)
    return F.concat(date, F.lit("T"), clock[0], F.lit(":"), clock[1], F.lit(":"), clock[2], tail)


# Not there: a double as text. Java writes 1.0E10 and, before 19, more digits than needed.
_CASTS: dict[tuple[str, str], Callable[[Column], Column]] = {
    ("double", "long"): _double_to_long,
    ("boolean", "long"): lambda column: column.cast(LONG),
    ("string", "long"): _text_to_long,
    ("timestamp", "long"): F.unix_millis,
    ("long", "double"): lambda column: column.cast(DOUBLE),
    ("boolean", "double"): lambda column: column.cast(DOUBLE),
    ("string", "double"): _text_to_double,
    ("long", "string"): lambda column: column.cast(STRING),
    ("boolean", "string"): lambda column: column.cast(STRING),
    ("timestamp", "string"): timestamp_to_text,
    ("long", "boolean"): lambda column: column != 0,
    ("double", "boolean"): lambda column: column != 0,
    ("string", "boolean"): _text_to_boolean,
    ("long", "timestamp"): _long_to_timestamp,
    ("string", "timestamp"): _text_to_timestamp,
}


# ---- serdes ----------------------------------------------------------------------------------------------------------


def schema_of(serde: Serde) -> DataType | None:
    """The Spark type of what a serde reads, if it declares one that Spark has; None otherwise.

    >>> from headwater import Int64, Json
    >>> schema_of(Int64()), schema_of(Json())
    (LongType(), None)
    >>> schema_of(Json(type=dict[str, float])).simpleString()
    'map<string,double>'
    """
    match serde:
        case Str():
            return STRING
        case Int64():
            return LONG
        case Float64():
            return DOUBLE
        case Bytes():
            return BINARY
        case Json() if serde.type is not None:
            return _type_of(msgspec.inspect.type_info(serde.type), ())
    return None


def _type_of(info: msgspec.inspect.Type, above: tuple[object, ...]) -> DataType | None:
    """The Spark type of a declared one, without what Spark would not check: ranges, patterns, tags, other names."""
    kinds: dict[type, DataType] = {
        msgspec.inspect.IntType: LONG,
        msgspec.inspect.FloatType: DOUBLE,
        msgspec.inspect.StrType: STRING,
        msgspec.inspect.BoolType: BOOLEAN,
        msgspec.inspect.DateTimeType: TIMESTAMP,
    }
    match info:
        case msgspec.inspect.UnionType(types):
            present = [kind for kind in types if not isinstance(kind, msgspec.inspect.NoneType)]
            return _type_of(present[0], above) if len(present) == 1 else None
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            element = None if _is_constrained(info) else _type_of(info.item_type, above)
            return None if element is None else ArrayType(element)
        case msgspec.inspect.DictType():
            key = None if _is_constrained(info) else _type_of(info.key_type, above)
            value = _type_of(info.value_type, above)
            return None if key != STRING or value is None else MapType(STRING, value)
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType() | msgspec.inspect.TypedDictType():
            return _struct_of(info, above)
    return None if _is_constrained(info) else kinds.get(type(info))


def _is_constrained(info: msgspec.inspect.Type) -> bool:
    limits = set(info.__struct_fields__) - {"item_type", "key_type", "value_type"}
    return any(getattr(info, limit) is not None for limit in limits)


def _struct_of(info: Any, above: tuple[object, ...]) -> DataType | None:
    # A type that holds itself has no schema of finite size.
    if info.cls in above or getattr(info, "tag", None) is not None or getattr(info, "array_like", False):
        return None
    if getattr(info, "forbid_unknown_fields", False) or any(field.name != field.encode_name for field in info.fields):
        return None
    kinds = [(field.name, _type_of(field.type, (*above, info.cls))) for field in info.fields]
    if any(kind is None for _, kind in kinds):
        return None
    return StructType([StructField(name, kind) for name, kind in kinds if kind is not None])
