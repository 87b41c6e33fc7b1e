"""The operators a topology is made of: one frozen dataclass each, its fields are its arguments.

A node's operator says *what* happens to a record; back ends register how (`streams/operators`). Two kinds of
records travel between nodes: stream records `(key, value, timestamp, headers)` and table updates
`(key, new, old, latest, timestamp, headers)`. Each class says which of them it takes and gives.
Operators name their stores; the store descriptions live in the topology.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headwater.dsl.serde import Serde
from headwater.dsl.suppress import Suppress
from headwater.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

Function = Callable[..., Any]
Emit = Literal["per-record", "per-batch"]


@dataclass(frozen=True)
class Op:
    """What one node does to each record it gets."""


# ---- stream in, stream out -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filter(Op):
    """Emit each record for which `predicate(key, value)` differs from `negate`."""

    predicate: Function
    negate: bool = False


@dataclass(frozen=True)
class Map(Op):
    """Emit the pair `f(key, value)`."""

    f: Function


@dataclass(frozen=True)
class MapValues(Op):
    """Emit the record with `f(value)`, or `f(key, value)` when keyed, as its value."""

    f: Function
    keyed: bool


@dataclass(frozen=True)
class FlatMap(Op):
    """Emit each pair of `f(key, value)`, in order."""

    f: Function


@dataclass(frozen=True)
class FlatMapValues(Op):
    """Emit the record once per element of `f(value)` (keyed: `f(key, value)`), in order."""

    f: Function
    keyed: bool


@dataclass(frozen=True)
class SelectKey(Op):
    """Emit the record under the key `f(key, value)`."""

    f: Function


@dataclass(frozen=True)
class Peek(Op):
    """Call `f(key, value)`, then emit the record unchanged."""

    f: Function


@dataclass(frozen=True)
class Foreach(Op):
    """Call `f(key, value)`; emit nothing."""

    f: Function


@dataclass(frozen=True)
class Print(Op):
    """Write `[label]: key, value` as one line to the file (None: standard output)."""

    label: str
    file: str | None


@dataclass(frozen=True)
class Branch(Op):
    """Emit the record to the child of the first predicate that holds, else to the default child if there is one."""

    predicates: tuple[Function, ...]
    children: tuple[str, ...]  # one per predicate, then perhaps one more: the default


@dataclass(frozen=True)
class PassThrough(Op):
    """Emit the record unchanged (the meeting point of merged streams, and a branch's own node)."""


@dataclass(frozen=True)
class RepartitionFilter(Op):
    """Emit the record on its way to a repartition topic; with `drop_null_keys` those without a key end here."""

    drop_null_keys: bool


@dataclass(frozen=True)
class Process(Op):
    """Run the user's processor; with `fixed_key` it may not change the key."""

    supplier: Function
    fixed_key: bool = False
    stores: tuple[str, ...] = ()


# ---- views: how the current value of a table is read by another operator -----------------------------------------


@dataclass(frozen=True)
class View:
    """A way to look up a table's current `(value, timestamp)` by key."""


@dataclass(frozen=True)
class StoreView(View):
    """Read the materialized store (key-value, versioned, window by Windowed key, or session by Windowed key)."""

    store: str


@dataclass(frozen=True)
class FilterView(View):
    """Read the parent and hide what the predicate rejects."""

    parent: View
    predicate: Function
    negate: bool


@dataclass(frozen=True)
class MapView(View):
    """Read the parent and map its value."""

    parent: View
    f: Function
    keyed: bool


@dataclass(frozen=True)
class JoinView(View):
    """Read both sides and join them as the table-table join does."""

    left: View
    right: View
    joiner: Function
    keyed: bool
    kind: Literal["inner", "left", "outer"]


@dataclass(frozen=True)
class SuppressView(View):
    """Read the value before the buffered update where one is buffered, else the parent."""

    buffer: str
    parent: View


# ---- stream in, table out ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableSource(Op):
    """Keep the latest value per key (in `store`, if any) and emit each change; null keys are dropped."""

    store: str | None
    send_old: bool


@dataclass(frozen=True)
class Aggregate(Op):
    """Fold each record into its key's aggregate; without `init` this is a reduce `f(aggregate, value)`."""

    store: str
    init: Function | None
    f: Function  # (key, value, aggregate); for a reduce (aggregate, value)
    send_old: bool
    emit: Emit = "per-record"  # "per-batch": a back end may emit one update per key and batch


@dataclass(frozen=True)
class TimeWindowAggregate(Op):
    """Fold each record into every window that holds it and is still open."""

    store: str
    windows: TimeWindows | UnlimitedWindows
    init: Function | None  # None: a reduce, f(aggregate, value)
    f: Function
    on_close: bool
    send_old: bool
    emit: Emit = "per-record"  # "per-batch": a back end may emit one update per key and batch


@dataclass(frozen=True)
class SlidingWindowAggregate(Op):
    """Fold each record into the sliding windows it creates and those it falls into."""

    store: str
    windows: SlidingWindows
    init: Function | None
    f: Function
    on_close: bool
    send_old: bool
    emit: Emit = "per-record"  # "per-batch": a back end may emit one update per key and batch


@dataclass(frozen=True)
class SessionAggregate(Op):
    """Fold each record into its session, merging the sessions it bridges."""

    store: str
    windows: SessionWindows
    init: Function | None
    f: Function
    merge: Function | None  # (key, a, b); None with a reduce: the reducer merges
    on_close: bool
    send_old: bool
    emit: Emit = "per-record"  # "per-batch": a back end may emit one update per key and batch


@dataclass(frozen=True)
class TableAggregate(Op):
    """Subtract the old and add the new value of a table's row in its group's aggregate.

    Takes stream records whose value is a pair (new, old) from the repartition topic. Without `init` this is a reduce:
    `add(aggregate, value)` and `subtract(aggregate, value)`.
    """

    store: str
    init: Function | None
    add: Function
    subtract: Function
    send_old: bool


# ---- table in, table out -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableFilter(Op):
    """Emit the update with values the predicate rejects turned into deletions."""

    predicate: Function
    negate: bool
    store: str | None
    send_old: bool
    versioned: bool


@dataclass(frozen=True)
class TableMapValues(Op):
    """Emit the update with its values mapped."""

    f: Function
    keyed: bool
    store: str | None
    send_old: bool


@dataclass(frozen=True)
class TableSuppress(Op):
    """Hold updates back in `buffer` until their time has come or the buffer is full."""

    buffer: str
    suppress: Suppress
    grace_ms: int  # of the windowed aggregate upstream; 0 for a time limit


@dataclass(frozen=True)
class TableJoinSide(Op):
    """Join an update of one table with the other table's current value.

    `kind` says what is emitted when the other side is missing: inner nothing; left (this side is the left of a left
    join) and outer join with None; right (this side is the right of a left join) nothing.
    """

    other: View
    joiner: Function
    keyed: bool
    kind: Literal["inner", "left", "right", "outer"]
    reverse: bool  # this side is the joiner's right argument
    send_old: bool
    versioned: bool


@dataclass(frozen=True)
class TableJoinMerge(Op):
    """Bring both sides of a table-table join together, and materialize the result if asked to."""

    store: str | None
    send_old: bool


@dataclass(frozen=True)
class TablePassThrough(Op):
    """Emit the update unchanged (where cogrouped aggregates meet)."""


# ---- table in, stream out ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToStream(Op):
    """Emit each update's new value as a stream record."""


@dataclass(frozen=True)
class TableGroupBy(Op):
    """Emit (new, old) pairs under their group's key, the old group first when the group changes."""

    f: Function  # (key, value) -> (group key, group value)
    versioned: bool


# ---- stream joins ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinWindow(Op):
    """Emit the record, then remember it in its side's window store."""

    store: str


@dataclass(frozen=True)
class StreamJoinSide(Op):
    """Join a record of one stream with the other stream's records inside the window.

    `outer`: this side's unmatched records are emitted (joined with None) once their window has closed. Both sides of
    one join share `shared` operator memory (stream time, minTime, next time to emit).
    """

    other_store: str
    unmatched: str | None
    windows: JoinWindows
    joiner: Function  # always called (left, right), keyed: (key, left, right)
    keyed: bool
    is_left: bool
    outer: bool
    shared: str


@dataclass(frozen=True)
class StreamSelfJoin(Op):
    """Join a stream with itself through one store."""

    store: str
    windows: JoinWindows
    joiner: Function
    keyed: bool


@dataclass(frozen=True)
class StreamTableJoin(Op):
    """Join a record with the table's current value; over a versioned table, with the value as of the record's time.

    With `buffer`, records wait there until stream time has passed their timestamp by `grace_ms`.
    """

    table: View
    joiner: Function
    keyed: bool
    left: bool
    buffer: str | None
    grace_ms: int | None


@dataclass(frozen=True)
class GlobalTableJoin(Op):
    """Join a record with the global table's value under the key `select(key, value)`."""

    table: View
    select: Function
    joiner: Function
    keyed: bool
    left: bool


# ---- foreign-key joins -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignKeySend(Op):
    """Turn a left table's update into subscriptions under its foreign key (table in, stream out)."""

    foreign_key: Function
    keyed: bool
    foreign_serde: Serde
    primary_serde: Serde
    value_serde: Serde
    left: bool
    versioned: bool


@dataclass(frozen=True)
class SubscriptionReceive(Op):
    """Keep or remove the subscription, then emit it (stream in, stream out)."""

    store: str


@dataclass(frozen=True)
class SubscriptionJoin(Op):
    """Answer a subscription with the foreign table's current row (stream in, stream out)."""

    foreign: View


@dataclass(frozen=True)
class ForeignTableJoin(Op):
    """Answer every subscription of a foreign row that changed, by primary key (table in, stream out)."""

    store: str
    foreign_serde: Serde
    versioned: bool


@dataclass(frozen=True)
class ResponseJoin(Op):
    """Join a response with the left row it was asked for, unless that row has changed since (stream in, stream out)."""

    primary: View
    joiner: Function
    keyed: bool
    value_serde: Serde
    left: bool
