"""What an expression is made of: a tree of plain data that both compilers walk, the table of functions with the kinds
they take and give, and the text an expression is shown as. It owns neither the users' spelling (`expressions.py`) nor
what a function computes (`expression_values.py`).

A kind is "long", "double", "string", "boolean", "timestamp" or "struct"; None stands for one that only the record
knows. "number" is a long or a double.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

__all__ = ["CASTS", "FUNCTIONS", "Call", "Cast", "Function", "Item", "Literal", "Node", "Record", "Struct", "When"]

CASTS = ("long", "double", "string", "boolean", "timestamp")


@dataclass(frozen=True)
class Function:
    """How a function is called and written: the kinds of its arguments (the last for all further ones), its result."""

    takes: tuple[str, ...]
    gives: str | None
    text: str  # with {0}, {1} for the arguments, {rest} for those after the first, {all} for all

    def kind_of_argument(self, index: int) -> str:
        """The kind that the argument at this place must have."""
        return self.takes[min(index, len(self.takes) - 1)]


def _binary(symbol: str, kind: str, gives: str | None) -> Function:
    return Function((kind, kind), gives, f"({{0}} {symbol} {{1}})")


def _method(name: str, *takes: str, gives: str) -> Function:
    return Function(takes, gives, f"{{0}}.{name}({{rest}})")


FUNCTIONS: dict[str, Function] = {
    "add": _binary("+", "number", "number"),
    "subtract": _binary("-", "number", "number"),
    "multiply": _binary("*", "number", "number"),
    "divide": _binary("/", "number", "double"),
    "modulo": _binary("%", "number", "number"),
    "negative": Function(("number",), "number", "(-{0})"),
    "abs": _method("abs", "number", gives="number"),
    "is_nan": _method("is_nan", "number", gives="boolean"),
    "equal": _binary("==", "scalar", "boolean"),
    "not_equal": _binary("!=", "scalar", "boolean"),
    "less": _binary("<", "scalar", "boolean"),
    "less_equal": _binary("<=", "scalar", "boolean"),
    "greater": _binary(">", "scalar", "boolean"),
    "greater_equal": _binary(">=", "scalar", "boolean"),
    "isin": _method("isin", "scalar", gives="boolean"),
    "and": _binary("&", "boolean", "boolean"),
    "or": _binary("|", "boolean", "boolean"),
    "not": Function(("boolean",), "boolean", "(~{0})"),
    "is_null": _method("is_null", "any", gives="boolean"),
    "is_not_null": _method("is_not_null", "any", gives="boolean"),
    "coalesce": Function(("any",), None, "coalesce({all})"),
    "upper": _method("upper", "string", gives="string"),
    "lower": _method("lower", "string", gives="string"),
    "length": _method("length", "string", gives="long"),
    "trim": _method("trim", "string", gives="string"),
    "substr": _method("substr", "string", "long", gives="string"),
    "contains": _method("contains", "string", gives="boolean"),
    "startswith": _method("startswith", "string", gives="boolean"),
    "endswith": _method("endswith", "string", gives="boolean"),
    "like": _method("like", "string", gives="boolean"),
    "replace": _method("replace", "string", gives="string"),
    "concat": Function(("string",), "string", "concat({all})"),
    "year": _method("year", "timestamp", gives="long"),
    "month": _method("month", "timestamp", gives="long"),
    "day": _method("day", "timestamp", gives="long"),
    "hour": _method("hour", "timestamp", gives="long"),
    "minute": _method("minute", "timestamp", gives="long"),
    "second": _method("second", "timestamp", gives="long"),
    "trunc": _method("trunc", "timestamp", "string", gives="timestamp"),
}


@dataclass(frozen=True)
class Node:
    """One part of an expression."""

    @property
    def kind(self) -> str | None:
        """The kind of its results, as far as the expression itself says."""
        return None

    def parts(self) -> tuple[Node, ...]:
        """The nodes it is made of."""
        return ()

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for part in self.parts():
            yield from part.walk()


@dataclass(frozen=True)
class Record(Node):
    """A part of the record itself; the timestamp is in milliseconds."""

    part: OneOf["key", "value", "timestamp"]

    @property
    def kind(self) -> str | None:
        return "long" if self.part == "timestamp" else None

    def __str__(self) -> str:
        return f"record_{self.part}()"


@dataclass(frozen=True)
class Item(Node):
    """A field of a struct or an entry of a map by its name, or an element of a list by its place."""

    of: Node
    name: str | int

    def parts(self) -> tuple[Node, ...]:
        return (self.of,)

    def __str__(self) -> str:
        if self.of == Record("value") and isinstance(self.name, str) and "." not in self.name:
            return f"col({self.name!r})"
        return f"{self.of}[{self.name!r}]"


@dataclass(frozen=True)
class Literal(Node):
    """A constant."""

    value: Any

    @property
    def kind(self) -> str | None:
        return _KINDS.get(type(self.value))

    def __str__(self) -> str:
        return f"lit({self.value!r})"


@dataclass(frozen=True)
class Call(Node):
    """A function from the table, over its arguments."""

    function: str
    arguments: tuple[Node, ...]

    @property
    def kind(self) -> str | None:
        return FUNCTIONS[self.function].gives

    def parts(self) -> tuple[Node, ...]:
        return self.arguments

    def __str__(self) -> str:
        shown = [repr(a.value) if isinstance(a, Literal) else str(a) for a in self.arguments]
        # Literals need no lit() where an operator makes them one; alone among themselves they do.
        if all(isinstance(argument, Literal) for argument in self.arguments):
            shown[0] = str(self.arguments[0])
        text = FUNCTIONS[self.function].text
        return text.format(*shown, rest=", ".join(shown[1:]), all=", ".join(shown))


@dataclass(frozen=True)
class Cast(Node):
    """A value turned into another kind."""

    of: Node
    to: str

    @property
    def kind(self) -> str | None:
        return self.to

    def parts(self) -> tuple[Node, ...]:
        return (self.of,)

    def __str__(self) -> str:
        return f"{self.of}.cast({self.to!r})"


@dataclass(frozen=True)
class When(Node):
    """The result beside the first condition that holds, else the other one."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node

    @property
    def kind(self) -> str | None:
        results = (*(result for _, result in self.branches), self.otherwise)
        kinds = {result.kind for result in results if result != Literal(None)}
        return kinds.pop() if len(kinds) == 1 else None

    def parts(self) -> tuple[Node, ...]:
        return (*(part for branch in self.branches for part in branch), self.otherwise)

    def __str__(self) -> str:
        branches = ".".join(f"when({condition}, {result})" for condition, result in self.branches)
        return f"{branches}.otherwise({self.otherwise})"


@dataclass(frozen=True)
class Struct(Node):
    """A struct of named results; with `keep`, these in place of or after the fields the value has."""

    fields: tuple[tuple[str, Node], ...]
    keep: bool

    @property
    def kind(self) -> str | None:
        return "struct"

    def parts(self) -> tuple[Node, ...]:
        return tuple(node for _, node in self.fields)

    def __str__(self) -> str:
        fields = ", ".join(f"{name}={node}" for name, node in self.fields)
        return f"{'with_columns' if self.keep else 'select'}({fields})"


_KINDS = {int: "long", float: "double", str: "string", bool: "boolean"}
