"""The Python compiler of expressions: one generated function per expression, over `(key, value)`. It owns the order in
which parts are evaluated (a branch that is not taken is never looked at) and the short cuts for common types; what the
functions compute is in `expression_values.py`, and every short cut must give the same.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from headwater.dsl import expression_values as values
from headwater.dsl.expression_nodes import Call, Cast, Item, Literal, Node, Record, Struct, When

__all__ = ["ExpressionFunction", "compile_node"]

_INFIX = {"add": "+", "subtract": "-", "multiply": "*"}
# Greater is written as not less-or-equal, which NaN satisfies.
_COMPARED = {
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "not {0} <= {1}",
    "greater_equal": "not {0} < {1}",
}
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
# Up to here every whole number is a double, so that comparing exactly and comparing as doubles are the same.
_EXACT = 2**53


class ExpressionFunction:
    """An expression in a callable's place: back ends that know expressions take `node`, all others call it.

    `predicate`: its results are taken for conditions, and must be booleans or null.
    """

    __headwater_expression__ = True

    def __init__(self, node: Node, predicate: bool = False) -> None:
        self.node = node
        self.predicate = predicate
        self.reads_timestamp = Record("timestamp") in node.walk()
        self.clock = [0]
        self.function = compile_node(node, predicate, self.clock)

    def __call__(self, key: Any, value: Any) -> Any:
        """The expression's result for a record."""
        return self.function(key, value)

    @property
    def __code__(self) -> CodeType:
        """What runs: by it an error's traceback shows which of a step's expressions failed."""
        return self.function.__code__

    def __reduce__(self) -> tuple[Any, ...]:
        return ExpressionFunction, (self.node, self.predicate)

    def __eq__(self, other: object) -> bool:
        # By text: lit(1), lit(1.0) and lit(True) are equal in Python.
        return isinstance(other, ExpressionFunction) and repr(self) == repr(other) and self.predicate == other.predicate

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return str(self.node)


def compile_node(node: Node, predicate: bool = False, clock: list[int] | None = None) -> FunctionType:
    """A function `(key, value)` that gives the expression's result; the record's timestamp is what `clock` holds.

    >>> compile_node(Call("add", (Item(Record("value"), "n"), Literal(1))))("key", {"n": 41})
    42
    """
    writer = _Writer()
    result = writer.write(node)
    if predicate and node.kind != "boolean":
        result = f"({result} if type({result}) is bool else truth({result}))"
    writer.line(f"return {result}")
    source = "\n".join(["def evaluate(key, value):", *writer.lines])
    names = {**writer.names, "clock": clock if clock is not None else [0], "item": values.item, "truth": values.truth}
    exec(compile(source, f"<{node!s:.120}>", "exec"), names)  # the text is ours: literals are names, not text
    evaluate: FunctionType = names["evaluate"]
    return evaluate


class _Writer:
    """The lines of a function under construction; `write` gives a name, or a constant, that holds a node's result."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._count = 0
        self._known: dict[str, str] = {}  # what has been computed already on every way to this line

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        known, self._known, self._depth = self._known, dict(self._known), self._depth + 1
        yield
        self._known, self._depth = known, self._depth - 1

    def new(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def constant(self, value: Any) -> str:
        if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
            return f"({value!r})" if type(value) in (int, float) and value < 0 else repr(value)
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def write(self, node: Node) -> str:
        if isinstance(node, Literal):
            return self.constant(node.value)
        if isinstance(node, Record):
            return "clock[0]" if node.part == "timestamp" else node.part
        text = str(node)
        if text not in self._known:
            self._known[text] = self._computed(node)
        return self._known[text]

    def _computed(self, node: Node) -> str:
        match node:
            case Item():
                return self._item(node)
            case Cast():
                return self._set(f"{self.constant(values.CAST[node.to])}({self.write(node.of)})")
            case When():
                return self._when(node)
            case Struct():
                return self._struct(node)
            case Call("and" | "or"):
                return self._junction(node)
            case Call("coalesce"):
                return self._coalesce(node)
            case Call():
                return self._call(node)
        raise TypeError(f"not a node: {node!r}")

    def _set(self, text: str) -> str:
        name = self.new()
        self.line(f"{name} = {text}")
        return name

    def _item(self, node: Item) -> str:
        of, name = self.write(node.of), self.constant(node.name)
        if not isinstance(node.name, str):
            return self._set(f"item({of}, {name})")
        known: set[type] = set()
        declared, read = self.constant(known), self.constant(values.item_of_declared(node.name, known))
        attribute = f"getattr({of}, {name})"
        if node.name.isidentifier() and node.name.isascii() and not keyword.iskeyword(node.name):
            attribute = f"{of}.{node.name}"
        return self._set(
            f"{of}.get({name}) if type({of}) is dict else {attribute} if type({of}) in {declared} else {read}({of})"
        )

    def _truth(self, node: Node) -> str:
        name = self.write(node)
        return name if node.kind == "boolean" else self._set(f"{name} if type({name}) is bool else truth({name})")

    def _when(self, node: When) -> str:
        result = self.new()
        depth = self._depth
        known = self._known
        for condition, then in node.branches:
            self._known = dict(self._known)
            holds = self._truth(condition)
            with self.block(f"if {holds} is True:"):
                self.line(f"{result} = {self.write(then)}")
            self.line("else:")
            self._depth += 1
            self._known = dict(self._known)
        self.line(f"{result} = {self.write(node.otherwise)}")
        self._depth, self._known = depth, known
        return result

    def _junction(self, node: Call) -> str:
        """Three-valued: the second is not looked at when the first decides."""
        decides = node.function == "or"
        first = self._truth(node.arguments[0])
        result = self._set(first)
        with self.block(f"if {first} is not {decides}:"):
            second = self._truth(node.arguments[1])
            self.line(f"if {second} is {decides} or {first} is not None: {result} = {second}")
        return result

    def _coalesce(self, node: Call) -> str:
        first, *others = node.arguments
        result = self._set(self.write(first))
        depth, known = self._depth, self._known
        for other in others:
            self.line(f"if {result} is None:")
            self._depth, self._known = self._depth + 1, dict(self._known)
            self.line(f"{result} = {self.write(other)}")
        self._depth, self._known = depth, known
        return result

    def _struct(self, node: Struct) -> str:
        result = self._set("None")
        with self.block("if value is not None:"):
            fields = ", ".join(f"{name!r}: {self.write(field)}" for name, field in node.fields)
            if node.keep:
                add = self.constant(values.with_fields)
                self.line(f"{result} = {add}(value, {{{fields}}})")
            else:
                self.line(f"{result} = {{{fields}}}")
        return result

    def _call(self, node: Call) -> str:
        name = node.function
        if name in ("is_null", "is_not_null"):
            # Set first: Python warns of `1 is None`.
            value = self._set(self.write(node.arguments[0]))
            return self._set(f"{value} is {'' if name == 'is_null' else 'not '}None")
        arguments = [self.write(argument) for argument in node.arguments]
        if name == "not":
            value = self._truth(node.arguments[0])
            return self._set(f"None if {value} is None else not {value}")
        general = f"{self.constant(values.FUNCTION[name])}({', '.join(arguments)})"
        quick = self._quick(node, arguments)
        return self._set(general if quick is None else f"{quick} else {general}")

    def _quick(self, node: Call, arguments: list[str]) -> str | None:
        """`result if test` for the types met most, where Python's own operator gives what the definition says."""
        name, nodes = node.function, node.arguments
        if name in _INFIX:
            doubles = [isinstance(n, Literal) and n.kind == "double" for n in nodes]
            if all(doubles) or any(isinstance(n, Literal) and n.kind != "double" for n in nodes):
                return None
            tests = [f"type({a}) is float" for a, known in zip(arguments, doubles, strict=True) if not known]
            return f"{arguments[0]} {_INFIX[name]} {arguments[1]} if {' and '.join(tests)}"
        if name in _COMPARED and isinstance(nodes[0], Literal) and not isinstance(nodes[1], Literal):
            name, nodes, arguments = _MIRRORED.get(name, name), nodes[::-1], arguments[::-1]
        if name in _COMPARED and isinstance(nodes[1], Literal) and not isinstance(nodes[0], Literal):
            value, (open_side, text) = nodes[1].value, arguments
            if type(value) is str:
                return f"{_COMPARED[name].format(open_side, text)} if type({open_side}) is str"
            if type(value) in (int, float) and -_EXACT < value < _EXACT:
                kind = self.new()
                test = f"({kind} := type({open_side})) is float or {kind} is int"
                return f"{_COMPARED[name].format(open_side, text)} if {test}"
        if name == "isin" and all(isinstance(n, Literal) and type(n.value) is str for n in nodes[1:]):
            known = self.constant(frozenset(n.value for n in nodes[1:] if isinstance(n, Literal)))
            return f"{arguments[0]} in {known} if type({arguments[0]}) is str"
        return None

