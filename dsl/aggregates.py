"""Aggregates over expressions: `agg.sum(col("amount"))`, `agg.count()`, `agg.min`, `agg.max`, `agg.avg`.

They are given to `aggregate(total=agg.sum(...), orders=agg.count())` of a grouped or windowed stream; the table's value
is a dict of those fields. Null is not counted, summed or compared, as in SQL: without any other value the result is
null (a count: 0).

>>> from headwater import StreamsBuilder, TopologyTestDriver, agg, col
>>> builder = StreamsBuilder()
>>> (builder.stream("orders").group_by_key()
...     .aggregate(total=agg.sum(col("amount")), orders=agg.count()).to_stream().to("totals"))
>>> with TopologyTestDriver(builder.build()) as driver:
...     driver.input("orders").send("ann", {"amount": 2}, at=0)
...     driver.input("orders").send("ann", {"amount": 3}, at=1)
...     [record.value for record in driver.output("totals").read_all()]
[{'total': 2, 'orders': 1}, {'total': 5, 'orders': 2}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from headwater.dsl import ops
from headwater.dsl.expression_code import ExpressionFunction
from headwater.dsl.expression_nodes import Node
from headwater.dsl.expression_steps import as_function
from headwater.dsl.expression_values import add, instant, less
from headwater.dsl.expressions import Expression
from headwater.dsl.graph import GraphNode, SinkNode, StepNode, TableNode
from headwater.dsl.serde import Serde
from headwater.dsl.topology import Topology
from headwater.errors import SerdeError, TopologyError

__all__ = ["Aggregate", "avg", "count", "max", "min", "sum"]


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a group: a function of all its records' results of an expression; None counts all records.

    >>> from headwater import agg, col
    >>> agg.sum(col("amount"))
    agg.sum(col('amount'))
    """

    function: str
    of: Node | None
    name: str | None = None

    def alias(self, name: str) -> Aggregate:
        """The same under a name, for fields called like an option of `aggregate`.

        >>> from headwater import agg, col
        >>> agg.max(col("value")).alias("value").name
        'value'
        """
        return Aggregate(self.function, self.of, name)

    def __repr__(self) -> str:
        return f"agg.{self.function}({self.of or ''})"


def sum(of: Any) -> Aggregate:
    """The sum; a long that no longer fits 64 bits is null from then on.

    >>> from headwater import agg, col
    >>> agg.sum(col("amount") * 2)
    agg.sum((col('amount') * 2))
    """
    return _aggregate("sum", of, "number")


def count(of: Any = None) -> Aggregate:
    """The number of records; of an expression, of those where it is not null.

    >>> from headwater import agg, col
    >>> agg.count(), agg.count(col("email"))
    (agg.count(), agg.count(col('email')))
    """
    return Aggregate("count", None) if of is None else _aggregate("count", of, None)


def min(of: Any) -> Aggregate:
    """The smallest value; NaN is greater than all numbers.

    >>> from headwater import agg, col
    >>> agg.min(col("amount"))
    agg.min(col('amount'))
    """
    return _aggregate("min", of, None)


def max(of: Any) -> Aggregate:
    """The greatest value; NaN is greater than all numbers.

    >>> from headwater import agg, col
    >>> agg.max(col("amount"))
    agg.max(col('amount'))
    """
    return _aggregate("max", of, None)


def avg(of: Any) -> Aggregate:
    """The mean, a double.

    >>> from headwater import agg, col
    >>> agg.avg(col("amount"))
    agg.avg(col('amount'))
    """
    return _aggregate("avg", of, "number")


def _aggregate(function: str, of: Any, kind: str | None) -> Aggregate:
    if not isinstance(of, Expression):
        raise TopologyError([f"agg.{function}() takes an expression, as agg.{function}(col('amount')), not {of!r:.80}"])
    node = of._node
    if kind == "number" and node.kind not in (None, "number", "long", "double"):
        raise TopologyError([f"agg.{function}({node}): it takes numbers, not a {node.kind}: use cast()"])
    if node.kind == "struct":
        raise TopologyError([f"agg.{function}({node}): it takes single values, not a struct"])
    as_function(of, timestamps=False)
    return Aggregate(function, node)


# ---- how they are computed: one state per aggregate, none of them changed in place ----------------------------------

_OVERFLOWN = False  # a sum's state once it did not fit; JSON and MessagePack can write it, and no sum is a boolean


def _add_up(state: Any, value: Any) -> Any:
    if state is None or value is None:
        return value if state is None else state
    if state is _OVERFLOWN or value is _OVERFLOWN:
        return _OVERFLOWN
    total = add(state, value)
    return _OVERFLOWN if total is None else total


def _number(value: Any) -> Any:
    add(value, 0)  # raises if it is no number, also the first
    return value


def _smaller(state: Any, value: Any) -> Any:
    if state is None or value is None:
        return value if state is None else state
    return value if less(value, state) else state


def _greater(state: Any, value: Any) -> Any:
    if state is None or value is None:
        return value if state is None else state
    return value if less(state, value) else state


def _means(state: list[Any], value: list[Any]) -> list[Any]:
    return [state[0] + value[0], state[1] + value[1]]


@dataclass(frozen=True)
class _Kind:
    """An aggregate's state before any record, of one value, of two states, and what it shows."""

    empty: Any
    of: Callable[[Any], Any]
    merge: Callable[[Any, Any], Any]
    shown: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _comparable(value: Any) -> Any:
    return instant(value) if isinstance(value, datetime) else value


def _counted(value: Any) -> int:
    return 0 if value is None else 1


def _summed(value: Any) -> list[Any]:
    return [0.0, 0] if value is None else [float(_number(value)), 1]


def _mean(state: list[Any]) -> float | None:
    total, number = state
    return total / number if number else None


def _total(state: Any) -> Any:
    return None if state is _OVERFLOWN else state


KINDS: dict[str, _Kind] = {
    "count": _Kind(0, _counted, lambda a, b: a + b, _same),
    "sum": _Kind(None, _number, _add_up, _total),
    "min": _Kind(None, _comparable, _smaller, _same),
    "max": _Kind(None, _comparable, _greater, _same),
    "avg": _Kind([0.0, 0], _summed, _means, _mean),
}


class Totals(dict[str, Any]):
    """The fields of a group's aggregates, as users see them, and behind them the states they are computed from."""

    __slots__ = ("states",)
    states: list[Any]


class Aggregator:
    """The aggregates of one step, as the functions an aggregation is made of: `init`, itself, and `merge`."""

    def __init__(self, aggregates: Mapping[str, Aggregate]) -> None:
        self.aggregates = dict(aggregates)
        self._kinds = [KINDS[aggregate.function] for aggregate in self.aggregates.values()]
        self._of = [None if a.of is None else ExpressionFunction(a.of).function for a in self.aggregates.values()]

    def __reduce__(self) -> tuple[Any, ...]:
        return Aggregator, (self.aggregates,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aggregator) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return ", ".join(f"{name}={aggregate!r}" for name, aggregate in self.aggregates.items())

    def totals(self, states: list[Any]) -> Totals:
        """What these states show."""
        totals = Totals(
            {name: kind.shown(state) for name, kind, state in zip(self.aggregates, self._kinds, states, strict=True)}
        )
        totals.states = states
        return totals

    def init(self) -> Totals:
        """The aggregates of no record."""
        return self.totals([kind.empty for kind in self._kinds])

    def __call__(self, key: Any, value: Any, totals: Totals) -> Totals:
        """The aggregates with one more record."""
        states = [
            kind.merge(state, 1 if of is None else kind.of(of(key, value)))
            for kind, of, state in zip(self._kinds, self._of, totals.states, strict=True)
        ]
        return self.totals(states)

    def merge(self, key: Any, a: Totals, b: Totals) -> Totals:
        """The aggregates of two sessions that became one."""
        merged = zip(self._kinds, a.states, b.states, strict=True)
        return self.totals([kind.merge(first, second) for kind, first, second in merged])


_encode_states = msgspec.msgpack.Encoder().encode
_decode_states = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True)
class TotalsSerde(Serde):
    """Aggregates in their store: a MessagePack array of their states, in the order of the fields."""

    aggregator: Aggregator

    def encode(self, value: Totals) -> bytes:
        try:
            return _encode_states(value.states)
        except Exception as error:
            raise SerdeError(f"{self!r} cannot encode {value!r:.80}: it writes what aggregate() computed") from error

    def decode(self, data: bytes) -> Totals:
        try:
            return self.aggregator.totals(_decode_states(data))
        except Exception as error:
            raise SerdeError(
                f"{self!r} cannot decode {data!r:.80}: it was written for other aggregates; reset the application or "
                "give the store another name"
            ) from error


# ---- what the fluent methods make of them ----------------------------------------------------------------------------


def over_expressions(
    given: Iterable[Any], named: Mapping[str, Any], options: dict[str, Any], emit: str
) -> tuple[Aggregator, list[str]] | None:
    """The aggregator of `aggregate(...)` and what is wrong with its arguments; None if they are functions.

    An option (`name=` and the like) that is an aggregate is a field, and left out of the options.
    """
    fields_of_options = {name: option for name, option in options.items() if isinstance(option, Aggregate)}
    options.update(dict.fromkeys(fields_of_options))
    arguments = [*((None, argument) for argument in given if argument is not None), *named.items()]
    arguments += fields_of_options.items()
    faults = []
    if emit not in ("per-record", "per-batch"):
        faults.append(f'emit= is "per-record" or "per-batch", not {emit!r}')
    if not any(isinstance(argument, Aggregate) for _, argument in arguments):
        if emit == "per-record" and not named:
            return None
        faults.append('aggregate() takes emit= and fields with aggregates over expressions only: total=agg.sum(...)')
    fields: dict[str, Aggregate] = {}
    for name, aggregate in arguments:
        if not isinstance(aggregate, Aggregate):
            place = f"{name}=" if name else "each argument"
            faults.append(f"aggregate() takes aggregates, as n=agg.count(), but {place} is {aggregate!r:.80}")
            continue
        field = name or aggregate.name
        if field is None:
            faults.append(f"aggregate({aggregate!r}) has no name: write aggregate(name={aggregate!r}) or .alias(name)")
        elif field in fields:
            faults.append(f"aggregate() gives the field {field!r} twice")
        else:
            fields[field] = aggregate
    return Aggregator(fields), faults


_STATELESS = (
    ops.Filter,
    ops.Map,
    ops.MapValues,
    ops.FlatMap,
    ops.FlatMapValues,
    ops.SelectKey,
    ops.Peek,
    ops.Foreach,
    ops.Print,
    ops.Branch,
    ops.ToStream,
)


class PerBatchNode(TableNode):
    """An aggregate that may emit one update per key and batch: what follows must keep nothing of single updates."""

    def write(self, topology: Topology) -> None:
        super().write(topology)  # also if it is refused: others look for its store
        stateful = dict.fromkeys([*self._stateful_below(self), *self._readers()])
        if stateful:
            raise TopologyError(
                [
                    f'{self.name}: emit="per-batch" is for aggregates that only stateless steps and a sink follow, not '
                    f"{name}: leave emit= out, write the result to a topic and read that, or (for a table's filter) "
                    "use to_stream() first"
                    for name in stateful
                ]
            )

    def _stateful_below(self, node: GraphNode) -> Iterator[str]:
        for child in node.children:
            if isinstance(child, SinkNode):
                continue
            if _keeps_nothing(child):
                yield from self._stateful_below(child)
            else:
                yield child.name

    def _readers(self) -> Iterator[str]:
        """The steps that look up its rows without being fed by it: stream-table joins."""
        root: GraphNode = self
        while root.parents:
            root = root.parents[0]
        seen: set[int] = set()
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                waiting.extend(node.children)
                if isinstance(node, StepNode) and self.table.store in node.connect:
                    yield node.name


def _keeps_nothing(node: GraphNode) -> bool:
    if not isinstance(node, StepNode) or node.specs():
        return False
    op = node.op()
    if isinstance(op, ops.PassThrough):
        return len(node.parents) == 1
    return isinstance(op, (*_STATELESS, ops.TableMapValues))
