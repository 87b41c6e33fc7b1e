"""Column expressions: what users write (`col("amount") > 10`) instead of a function of a record, so that a back end can
see what it computes. It owns the spelling and the errors of wrong use; the tree is `expression_nodes.py`, the meaning
`expression_values.py`.
"""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from headwater.dsl.expression_code import ExpressionFunction
from headwater.dsl.expression_nodes import (
    CASTS,
    FUNCTIONS,
    Call,
    Cast,
    Item,
    Literal,
    Node,
    Record,
    When,
)
from headwater.dsl.expression_values import HIGH, LOW, TRUNCATIONS, instant, like_regex
from headwater.errors import TopologyError

__all__ = [
    "Cases",
    "Expression",
    "coalesce",
    "col",
    "concat",
    "lit",
    "record_key",
    "record_timestamp",
    "record_value",
    "when",
]

_CAST_NAMES: dict[object, str] = {int: "long", float: "double", str: "string", bool: "boolean", datetime: "timestamp"}
_CAST_NAMES |= {name: name for name in CASTS}


class Expression:
    """A value computed from a record; operators and methods make new ones of it, and nothing is computed until it runs.

    Integers have 64 bits, null spreads as in SQL, and what has no answer (overflow, division by zero, text that is no
    number) is null.

    >>> from headwater import col
    >>> total = col("amount") * 1.2
    >>> total
    (col('amount') * 1.2)
    >>> total.evaluate({"amount": 10.0})
    12.0
    """

    __slots__ = ("_name", "_node")

    def __init__(self, node: Node, name: str | None = None) -> None:
        self._node = node
        self._name = name

    def alias(self, name: str) -> Expression:
        """The same under a name, which `select` gives the field.

        >>> from headwater import StreamsBuilder, TopologyTestDriver, col
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").select(col("first").upper().alias("name")).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", {"first": "ann"}, at=0)
        ...     driver.output("out").read_all()[0].value
        {'name': 'ANN'}
        """
        if not isinstance(name, str) or not name:
            raise TopologyError([f"{self!r}: alias() takes a field's name, not {name!r}"])
        return Expression(self._node, name)

    def evaluate(self, value: Any = None, *, key: Any = None, timestamp: int = 0) -> Any:
        """The result for one record, as every back end computes it.

        >>> from headwater import col
        >>> (col("a") / col("b")).evaluate({"a": 1, "b": 0}) is None
        True
        """
        function = ExpressionFunction(self._node)
        function.clock[0] = timestamp
        return function(key, value)

    # ---- arithmetic --------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expression:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _call("subtract", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _call("subtract", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _call("multiply", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _call("multiply", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _call("divide", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _call("modulo", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _call("modulo", other, self)

    def __neg__(self) -> Expression:
        return _call("negative", self)

    def __abs__(self) -> Expression:
        return self.abs()

    def abs(self) -> Expression:
        """The number without its sign.

        >>> from headwater import col
        >>> col("n").abs().evaluate({"n": -3})
        3
        """
        return _call("abs", self)

    def is_nan(self) -> Expression:
        """Whether the number is NaN.

        >>> from headwater import col
        >>> (col("n") - col("n")).is_nan().evaluate({"n": float("inf")})
        True
        """
        return _call("is_nan", self)

    # ---- comparison and logic ----------------------------------------------------------------------------------

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]  # it compares when it runs
        return _call("equal", self, other)

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return _call("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]  # a set would ask whether two are equal, and get an expression

    def __lt__(self, other: Any) -> Expression:
        return _call("less", self, other)

    def __le__(self, other: Any) -> Expression:
        return _call("less_equal", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _call("greater", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _call("greater_equal", self, other)

    def __and__(self, other: Any) -> Expression:
        return _call("and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return _call("and", other, self)

    def __or__(self, other: Any) -> Expression:
        return _call("or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return _call("or", other, self)

    def __invert__(self) -> Expression:
        return _call("not", self)

    def isin(self, *values: Any) -> Expression:
        """Whether the value is one of these; a list of them may be given instead.

        >>> from headwater import col
        >>> col("country").isin("DE", "FR").evaluate({"country": "FR"})
        True
        """
        given = values[0] if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset) else values
        literals = [lit(value) for value in given]
        if not literals:
            raise TopologyError([f"{self!r}: isin() needs at least one value"])
        return _call("isin", self, *literals)

    def between(self, low: Any, high: Any) -> Expression:
        """Whether the value lies between two others, both included.

        >>> from headwater import col
        >>> col("n").between(1, 5).evaluate({"n": 5})
        True
        """
        return _call("and", self >= low, self <= high)

    def is_null(self) -> Expression:
        """Whether there is no value.

        >>> from headwater import col
        >>> col("user")["name"].is_null().evaluate({"user": None})
        True
        """
        return _call("is_null", self)

    def is_not_null(self) -> Expression:
        """Whether there is a value.

        >>> from headwater import col
        >>> col("n").is_not_null().evaluate({"n": 0})
        True
        """
        return _call("is_not_null", self)

    def null_if(self, other: Any) -> Expression:
        """The value, or null where it equals another one.

        >>> from headwater import coalesce, col
        >>> coalesce(col("name").null_if(""), "nobody").evaluate({"name": ""})
        'nobody'
        """
        return when(self == other, None).otherwise(self)

    # ---- strings -----------------------------------------------------------------------------------------------

    def upper(self) -> Expression:
        """The text in upper case.

        >>> from headwater import col
        >>> col("s").upper().evaluate({"s": "straße"})
        'STRASSE'
        """
        return _call("upper", self)

    def lower(self) -> Expression:
        """The text in lower case.

        >>> from headwater import col
        >>> col("s").lower().evaluate({"s": "ÉTÉ"})
        'été'
        """
        return _call("lower", self)

    def length(self) -> Expression:
        """The number of characters (code points).

        >>> from headwater import col
        >>> col("s").length().evaluate({"s": "naïve"})
        5
        """
        return _call("length", self)

    def trim(self) -> Expression:
        """The text without spaces at either end; other white space stays.

        >>> from headwater import col
        >>> col("s").trim().evaluate({"s": "  a b "})
        'a b'
        """
        return _call("trim", self)

    def substr(self, start: int, length: int) -> Expression:
        """So many characters from a place on: 1 is the first, -1 the last.

        >>> from headwater import col
        >>> col("s").substr(1, 2).evaluate({"s": "Roma"}), col("s").substr(-2, 2).evaluate({"s": "Roma"})
        ('Ro', 'ma')
        """
        for number in (start, length):
            if type(number) is not int or not -(2**31) < number < 2**31:
                raise TopologyError([f"{self!r}: substr() takes two numbers of 32 bits, not {number!r}"])
        return _call("substr", self, start, length)

    def contains(self, other: Any) -> Expression:
        """Whether another text is part of this one.

        >>> from headwater import col
        >>> col("s").contains("om").evaluate({"s": "Roma"})
        True
        """
        return _call("contains", self, other)

    def startswith(self, other: Any) -> Expression:
        """Whether the text begins with another one.

        >>> from headwater import col
        >>> col("s").startswith("Ro").evaluate({"s": "Roma"})
        True
        """
        return _call("startswith", self, other)

    def endswith(self, other: Any) -> Expression:
        """Whether the text ends with another one.

        >>> from headwater import col
        >>> col("s").endswith("ma").evaluate({"s": "Roma"})
        True
        """
        return _call("endswith", self, other)

    def like(self, pattern: str) -> Expression:
        """Whether the whole text fits a pattern: `%` is any text, `_` one character, a backslash takes both literally.

        >>> from headwater import col
        >>> col("s").like("R_m%").evaluate({"s": "Roma"})
        True
        """
        if not isinstance(pattern, str):
            raise TopologyError([f"{self!r}: like() takes a pattern, not {pattern!r}"])
        try:
            like_regex(pattern)
        except ValueError as error:
            raise TopologyError([f"{self!r}: like(): {error}"]) from None
        return _call("like", self, pattern)

    def replace(self, old: Any, new: Any) -> Expression:
        """The text with every occurrence of one text replaced by another.

        >>> from headwater import col
        >>> col("s").replace("o", "0").evaluate({"s": "foo"})
        'f00'
        """
        return _call("replace", self, old, new)

    # ---- kinds, timestamps, parts ------------------------------------------------------------------------------

    def cast(self, to: str | type) -> Expression:
        """The value as "long", "double", "string", "boolean" or "timestamp" (or int, float, str, bool, datetime).

        Null where it cannot be one. As a long, a timestamp is in milliseconds since 1970.

        >>> from headwater import col
        >>> col("s").cast("long").evaluate({"s": " 42 "}), col("s").cast("long").evaluate({"s": "4x"})
        (42, None)
        """
        name = _CAST_NAMES.get(to) if isinstance(to, str | type) else None
        if name is None:
            raise TopologyError([f"{self!r}: cast() knows {', '.join(CASTS)}, not {to!r}"])
        return Expression(Cast(self._node, name), self._name)

    def year(self) -> Expression:
        """The year of a timestamp, in UTC.

        >>> from headwater import col
        >>> col("at").cast("timestamp").year().evaluate({"at": "2024-05-06T07:08:09Z"})
        2024
        """
        return _call("year", self)

    def month(self) -> Expression:
        """The month of a timestamp, in UTC.

        >>> from headwater import col
        >>> col("at").cast("timestamp").month().evaluate({"at": "2024-05-06T07:08:09Z"})
        5
        """
        return _call("month", self)

    def day(self) -> Expression:
        """The day of the month of a timestamp, in UTC.

        >>> from headwater import col
        >>> col("at").cast("timestamp").day().evaluate({"at": "2024-05-06T23:08:09-02:00"})
        7
        """
        return _call("day", self)

    def hour(self) -> Expression:
        """The hour of a timestamp, in UTC.

        >>> from headwater import record_timestamp
        >>> record_timestamp().cast("timestamp").hour().evaluate(timestamp=7_200_000)
        2
        """
        return _call("hour", self)

    def minute(self) -> Expression:
        """The minute of a timestamp.

        >>> from headwater import col
        >>> col("at").cast("timestamp").minute().evaluate({"at": "2024-05-06T07:08:09Z"})
        8
        """
        return _call("minute", self)

    def second(self) -> Expression:
        """The second of a timestamp, without its fraction.

        >>> from headwater import col
        >>> col("at").cast("timestamp").second().evaluate({"at": "2024-05-06T07:08:09.5Z"})
        9
        """
        return _call("second", self)

    def trunc(self, unit: str) -> Expression:
        """The beginning of a timestamp's "year", "month", "week" (Monday), "day", "hour", "minute" or "second", in UTC.

        >>> from headwater import col
        >>> col("at").cast("timestamp").trunc("day").cast("string").evaluate({"at": "2024-05-06T07:08:09Z"})
        '2024-05-06T00:00:00Z'
        """
        if unit not in TRUNCATIONS:
            raise TopologyError([f"{self!r}: trunc() knows {', '.join(TRUNCATIONS)}, not {unit!r}"])
        return _call("trunc", self, unit)

    def __getitem__(self, name: str | int) -> Expression:
        if type(name) is not int and not isinstance(name, str):
            raise TopologyError([f"{self!r}[...] takes a field's name or an element's number, not {name!r}"])
        return Expression(Item(self._node, name), name if isinstance(name, str) else self._name)

    # ---- wrong use ---------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise TopologyError(
            [
                f"{self!r} is neither true nor false before a record is there: combine conditions with & | ~, each in "
                "parentheses (not and, or, not, in, nor a < b < c), and choose with when(...).otherwise(...) (not if)"
            ]
        )

    def __iter__(self) -> NoReturn:
        raise TopologyError([f"{self!r} cannot be iterated over: take its elements by number, or flat_map_values it"])

    def __contains__(self, other: object) -> NoReturn:
        raise TopologyError([f"`in` cannot ask {self!r}: write .contains(...) for text, .isin(...) for a choice"])

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            message = f"an expression has no {name!r}"
            if not name.startswith("_"):
                close = difflib.get_close_matches(name, [n for n in dir(type(self)) if not n.startswith("_")], n=1)
                message += f": did you mean {close[0]!r}?" if close else f': a field is read with col("a")[{name!r}]'
            raise AttributeError(message)

    def __repr__(self) -> str:
        return str(self._node)

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, (self._node, self._name)


def col(name: str) -> Expression:
    """A field of the record's value; a dot leads into a struct or map: `col("user.name")`.

    >>> from headwater import col
    >>> col("user.name").evaluate({"user": {"name": "ann"}})
    'ann'
    """
    if not isinstance(name, str) or not all(name.split(".")):
        raise TopologyError([f"col() takes a field's name, as in col('amount') or col('user.name'), not {name!r}"])
    expression = record_value()
    for part in name.split("."):
        expression = expression[part]
    return expression


def record_key() -> Expression:
    """The record's key.

    >>> from headwater import record_key
    >>> record_key().upper().evaluate(key="ann")
    'ANN'
    """
    return Expression(Record("key"), "key")


def record_value() -> Expression:
    """The record's whole value, for values that are no structs.

    >>> from headwater import record_value
    >>> (record_value() > 10).evaluate(12)
    True
    """
    return Expression(Record("value"), "value")


def record_timestamp() -> Expression:
    """The record's timestamp, in milliseconds since 1970.

    >>> from headwater import record_timestamp
    >>> (record_timestamp() / 1000).evaluate(timestamp=1500)
    1.5
    """
    return Expression(Record("timestamp"), "timestamp")


def lit(value: Any) -> Expression:
    """A constant: None, a boolean, number, text or datetime.

    >>> from headwater import lit
    >>> lit("EUR").evaluate()
    'EUR'
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, datetime):
        value = instant(value)
    elif value is not None and type(value) not in (bool, int, float, str):
        raise TopologyError([f"lit() takes None, a boolean, number, text or datetime, not {value!r:.80}"])
    if type(value) is int and not LOW <= value <= HIGH:
        raise TopologyError([f"lit({value}): integers have 64 bits; use a float"])
    return Expression(Literal(value))


def coalesce(*values: Any) -> Expression:
    """The first value that is not null.

    >>> from headwater import coalesce, col
    >>> coalesce(col("nick"), col("name"), "nobody").evaluate({"name": "ann"})
    'ann'
    """
    if not values:
        raise TopologyError(["coalesce() needs at least one value"])
    return _call("coalesce", *values)


def concat(*values: Any) -> Expression:
    """The texts one after the other; null if one of them is.

    >>> from headwater import col, concat
    >>> concat(col("first"), " ", col("last")).evaluate({"first": "Ann", "last": "Lee"})
    'Ann Lee'
    """
    if not values:
        raise TopologyError(["concat() needs at least one text"])
    return _call("concat", *values)


class Cases(Expression):
    """An expression by cases that can take more of them; without `otherwise` it is null where none holds."""

    __slots__ = ()

    def when(self, condition: Any, result: Any) -> Cases:
        """One more case, for records for which none before holds.

        >>> from headwater import col, when
        >>> size = when(col("n") > 9, "large").when(col("n") > 4, "medium").otherwise("small")
        >>> [size.evaluate({"n": n}) for n in (12, 7, 1)]
        ['large', 'medium', 'small']
        """
        assert isinstance(self._node, When)
        return Cases(When((*self._node.branches, _branch(condition, result)), self._node.otherwise))

    def otherwise(self, result: Any) -> Expression:
        """What it is where no case holds.

        >>> from headwater import col, when
        >>> when(col("n") > 9, "large").otherwise("small").evaluate({"n": 3})
        'small'
        """
        assert isinstance(self._node, When)
        return Expression(When(self._node.branches, lit(result)._node))

    def __reduce__(self) -> tuple[Any, ...]:
        return Cases, (self._node, self._name)


def when(condition: Any, result: Any) -> Cases:
    """The result where the condition holds; add `.when(...)` for further cases and `.otherwise(...)` for the rest.

    >>> from headwater import col, when
    >>> when(col("amount") < 0, 0).otherwise(col("amount")).evaluate({"amount": -5})
    0
    """
    return Cases(When((_branch(condition, result),), Literal(None)))


def _branch(condition: Any, result: Any) -> tuple[Node, Node]:
    node = lit(condition)._node
    if node.kind not in (None, "boolean"):
        raise TopologyError([f"when({node}, ...): a condition is a boolean, not a {node.kind}"])
    return node, lit(result)._node


def _call(function: str, *arguments: Any) -> Expression:
    nodes = tuple(lit(argument)._node for argument in arguments)
    signature = FUNCTIONS[function]
    call = Call(function, nodes)
    for index, node in enumerate(nodes):
        wanted = signature.kind_of_argument(index)
        if not _fits(node.kind, wanted):
            raise TopologyError(
                [f"{call}: argument {index + 1} must be a {wanted}, but {node} is a {node.kind}: use cast()"]
            )
    kinds = {"number" if node.kind in ("long", "double") else node.kind for node in nodes} - {None}
    if signature.takes[0] == "scalar" and len(kinds) > 1:
        raise TopologyError([f"{call} compares a {' with a '.join(sorted(map(str, kinds)))}: use cast()"])
    return Expression(call)


def _fits(kind: str | None, wanted: str) -> bool:
    if kind is None or wanted == "any" or kind == wanted:
        return True
    if wanted == "scalar":
        return kind != "struct"
    return wanted == "number" and kind in ("long", "double")
