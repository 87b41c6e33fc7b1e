"""What the fluent methods make of the expressions they are given: the function that a step calls, and the struct of a
`select`. It owns what is said about expressions in the wrong place; the steps themselves are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.dsl.expression_code import ExpressionFunction
from headwater.dsl.expression_nodes import Node, Struct
from headwater.dsl.expressions import Expression, col
from headwater.errors import TopologyError

__all__ = ["GroupFunction", "as_function", "struct"]


def as_function(f: Any, *, predicate: bool = False, timestamps: bool = True) -> Any:
    """An expression as the function of a record that steps call; anything else as it is.

    `predicate`: it must be a condition. `timestamps`: whether the step knows the record's timestamp.
    """
    if not isinstance(f, Expression):
        return f
    if predicate and f._node.kind not in (None, "boolean"):
        raise TopologyError([f"{f!r} is a {f._node.kind}, but a condition is needed: compare it with something"])
    function = ExpressionFunction(f._node, predicate)
    if function.reads_timestamp and not timestamps:
        raise TopologyError(
            [
                f"{f!r}: record_timestamp() is known in a stream's stateless steps only: "
                "put it into a field before, with_columns(at=record_timestamp())"
            ]
        )
    return function


class GroupFunction:
    """An expression for a table's `group_by`: its result is the group's key, the value stays as it is."""

    def __init__(self, function: ExpressionFunction) -> None:
        self.function = function

    def __call__(self, key: Any, value: Any) -> tuple[Any, Any]:
        """The group's key and the value."""
        return self.function(key, value), value

    def __repr__(self) -> str:
        return repr(self.function)


def struct(
    step: str, columns: Iterable[Any], named: Mapping[str, Any], *, keep: bool
) -> tuple[ExpressionFunction, list[str]]:
    """The function of `select` (or, with `keep`, `with_columns`), and what is wrong with its arguments."""
    fields: dict[str, Node] = {}
    faults: list[str] = []
    given = [(None, column) for column in columns] + list(named.items())
    for name, column in given:
        expression = col(column) if name is None and isinstance(column, str) else column
        if not isinstance(expression, Expression):
            place = f"{name}=" if name else "each column"
            faults.append(f"{step}() takes expressions: {place} is {column!r:.80}: write col(...) or lit(...)")
            continue
        field = name or expression._name
        if field is None:
            faults.append(f"{step}({expression!r}) has no name: write {step}(name=...) or .alias(name)")
        elif field in fields:
            faults.append(f"{step}() gives the field {field!r} twice")
        else:
            fields[field] = expression._node
    if not given:
        faults.append(f"{step}() needs at least one field: {step}(name=col(...))")
    return ExpressionFunction(Struct(tuple(fields.items()), keep)), faults
