"""Joins between streams, and of streams and tables with tables, written into the logical graph."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from headwater.dsl import ops
from headwater.dsl.durations import checked_ms
from headwater.dsl.graph import StepNode, StreamJoinNode, TableJoinNode
from headwater.dsl.ops import Function
from headwater.dsl.serde import Serde
from headwater.dsl.stores import StoreDescription, Window
from headwater.dsl.suppliers import JoinedTable, stores_of
from headwater.dsl.table import GlobalKTable, KTable
from headwater.dsl.topology import StoreSpec
from headwater.dsl.windows import JoinWindows
from headwater.errors import TopologyError

if TYPE_CHECKING:
    from headwater.dsl.drawing import Drawing
    from headwater.dsl.stream import KStream

Kind = Literal["inner", "left", "outer"]

# What a join with each kind of partner may be given; None stands for KStream, which is not importable from here.
_OPTIONS: tuple[tuple[type | None, frozenset[str]], ...] = (
    (None, frozenset({"key", "value", "other_value", "name", "store"})),
    (KTable, frozenset({"grace", "key", "value", "other_value", "name"})),
    (GlobalKTable, frozenset({"select", "name"})),
)


def join_stream(
    left: KStream, right: Any, joiner: Function, kind: Kind, windows: JoinWindows | None, **options: Any
) -> KStream:
    """A stream joined with whatever stands on the right."""
    from headwater.dsl.stream import KStream

    for kinds, allowed in _OPTIONS:
        if isinstance(right, KStream if kinds is None else kinds):
            left._drawing.check_own(left._name, right)
            if unknown := sorted(options.keys() - allowed):
                what = type(right).__name__
                raise TopologyError([f"{left!r}: a join with a {what} takes no {', '.join(f'{u}=' for u in unknown)}"])
            step = left._drawing.text("name=", options.get("name")) or left._name
            for argument in ("key", "value", "other_value"):
                left._drawing.check_serde(step, f"{argument}=", options.get(argument))
    if isinstance(right, KStream):
        if not isinstance(windows, JoinWindows):
            raise TopologyError([f"{left!r}: a stream-stream join needs windows=JoinWindows.of(...), not {windows!r}"])
        if type(windows) is not JoinWindows:
            raise TopologyError([f"{left!r}: {type(windows).__qualname__}: use JoinWindows itself, no subclass"])
        return _join_streams(left, right, joiner, kind, windows, **options)
    if windows is not None:
        raise TopologyError([f"{left!r}: windows are for stream-stream joins; this joins {type(right).__name__}"])
    if isinstance(right, KTable):
        return _join_table(left, right, joiner, kind == "left", **options)
    if isinstance(right, GlobalKTable):
        return _join_global(left, right, joiner, kind == "left", **options)
    raise TopologyError([f"{left!r}: cannot join {right!r}: a KStream, KTable or GlobalKTable is needed"])


def _repartitioned(
    stream: KStream, stem: str, key: Serde | None, value: Serde | None, named: bool
) -> KStream:
    """The stream behind a repartition topic, shared by joins that would use the same one."""
    from headwater.dsl.stream import KStream

    drawing = stream._drawing
    key, value = key or stream._key, value or stream._value
    node = drawing.repartition(stem, key, value, named)
    if stream._join_repartition is None or stream._name != stem:
        stream._join_repartition = node
        drawing.add(stream._node, node)
    shared = stream._join_repartition
    return KStream(drawing, shared, shared.name, key, value, frozenset({shared.name}), False)


def _join_streams(
    left: KStream,
    right: KStream,
    joiner: Function,
    kind: Kind,
    windows: JoinWindows,
    *,
    key: Serde | None = None,
    value: Serde | None = None,
    other_value: Serde | None = None,
    name: str | None = None,
    store: str | tuple[Window, Window] | None = None,
) -> KStream:
    from headwater.dsl.stream import KStream

    drawing = left._drawing
    if left._repartition:
        stem = f"{name}-left" if name is not None else left._name
        left = _repartitioned(left, stem, key, value, name is not None)
    if right._repartition:
        stem = f"{name}-right" if name is not None else right._name
        right = _repartitioned(right, stem, key, other_value, name is not None)
    sources = drawing.copartition(left._sources, right._sources)
    inherited = (
        ("key=", key, left._key or right._key, drawing.default_key),
        ("value=", value, left._value, drawing.default_value),
        ("other_value=", other_value, right._value, drawing.default_value),
    )
    result_key = key or left._key or right._key
    key = result_key or drawing.default_key
    value = value or left._value or drawing.default_value
    other_value = other_value or right._value or drawing.default_value

    left_outer, right_outer = kind != "inner", kind == "outer"
    this_suffix = "-outer-this-join" if right_outer else "-this-join"
    other_suffix = "-outer-other-join" if left_outer else "-other-join"
    windowed = (
        drawing.suffixed(name, "-this-windowed", "KSTREAM-WINDOWED-"),
        drawing.suffixed(name, "-other-windowed", "KSTREAM-WINDOWED-"),
    )
    generated = (
        drawing.new_name("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-"),
        drawing.new_name("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-"),
    )
    sides = generated if name is None else (name + this_suffix, name + other_suffix)
    merge = drawing.suffixed(name, "-merge", "KSTREAM-MERGE-")
    keyed = drawing.keyed(merge, joiner, 2)
    for argument, given, own, default in inherited:
        drawing.note_inherited(merge, argument, given, own, default)

    base = store if isinstance(store, str) else None
    pair: tuple[Window | None, Window | None] = (None, None)
    if isinstance(store, tuple | list) and len(store) == 2 and all(isinstance(side, Window) for side in store):
        pair = store[0], store[1]
    elif not isinstance(store, str | None):
        drawing.fault(merge, f"store= takes the stem of the stores' names, or a pair of Window(...), not {store!r}")
    stems = generated if base is None else (base + this_suffix, base + other_suffix)
    specs = tuple(
        _join_store(drawing, merge, f"{stem}-store", description, windows, key, side_value)
        for stem, description, side_value in zip(stems, pair, (value, other_value), strict=True)
    )
    unmatched = None
    if left_outer:
        unmatched = StoreSpec(
            "unmatched",
            _unmatched_name(base, pair[0], generated[0], right_outer),
            key,
            value,
            other_value,
            changelog=specs[0].changelog,
            memory=specs[0].memory,
        )
    if store is None:
        for spec in (*specs, *((unmatched,) if unmatched else ())):
            drawing.note_unnamed(spec.name)
    for stream, step, spec in zip((left, right), windowed, specs, strict=True):
        drawing.add(stream._node, StepNode(step, ops.JoinWindow(spec.name), (spec,)))
    shared = (unmatched,) if unmatched else ()
    node = StreamJoinNode(
        merge,
        windowed,
        sides,
        (
            ops.StreamJoinSide(
                specs[1].name,
                unmatched.name if unmatched else None,
                windows,
                joiner,
                keyed,
                is_left=True,
                outer=left_outer,
                shared=merge,
            ),
            ops.StreamJoinSide(
                specs[0].name,
                unmatched.name if unmatched else None,
                windows,
                joiner,
                keyed,
                is_left=False,
                outer=right_outer,
                shared=merge,
            ),
        ),
        ops.PassThrough(),
        ops.StreamSelfJoin(specs[0].name, windows, joiner, keyed),
        ((specs[1], *shared), (specs[0], *shared)),
        (specs[0],),
    )
    node.relaxed_null_keys = left_outer
    drawing.add((left._node, right._node), node)
    return KStream(drawing, node, merge, result_key, None, sources, False)


def _unmatched_name(stem: str | None, this: Window | None, generated: str, right_outer: bool) -> str:
    suffix = "-outer-shared-join-store" if right_outer else "-left-shared-join-store"
    if this is not None and this.name:
        return this.name + suffix
    if stem is not None:
        return stem + suffix
    return f"KSTREAM-OUTERSHARED-{generated[-10:]}-store"


def _join_store(
    drawing: Drawing,
    step: str,
    name: str,
    description: Window | None,
    windows: JoinWindows,
    key: Serde,
    value: Serde,
) -> StoreSpec:
    size_ms = windows.before_ms + windows.after_ms
    retention_ms = size_ms + windows.grace_ms
    description = description or Window(duplicates=True)
    name = description.name or name
    if not description.duplicates:
        drawing.fault(step, f"store {name!r}: a join's window store needs duplicates=True")
    for what, given, wanted in (
        ("size", description.size_ms, size_ms),
        ("retention", description.retention_ms, retention_ms),
    ):
        if given not in (None, wanted):
            drawing.fault(step, f"store {name!r}: {what} must be the join windows' own, {wanted} ms, not {given} ms")
    return StoreSpec(
        "window",
        name,
        description.key or key,
        description.value or value,
        duplicates=True,
        retention_ms=retention_ms,
        size_ms=size_ms,
        changelog=description.changelog,
        memory=description.memory,
    )


def _join_table(
    stream: KStream,
    table: KTable,
    joiner: Function,
    left: bool,
    *,
    grace: timedelta | None = None,
    key: Serde | None = None,
    value: Serde | None = None,
    other_value: Serde | None = None,
    name: str | None = None,
) -> KStream:
    from headwater.dsl.stream import KStream

    drawing = stream._drawing
    if stream._repartition:
        stem = name if name is not None else stream._name
        stream = _repartitioned(stream, stem, key, value, name is not None)
    sources = drawing.copartition(stream._sources, table._sources)
    given, name = name, drawing.named(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    key, value = key or stream._key, value or stream._value
    view = table.view()
    buffers: tuple[StoreSpec, ...] = ()
    grace_ms = None
    if grace is not None:
        faults: list[str] = []
        grace_ms = checked_ms("grace=", grace, faults)
        for fault in faults:
            drawing.fault(name, fault)
        buffer = StoreSpec(
            "grace", f"{name}-Buffer", key or drawing.default_key, value or drawing.default_value, retention_ms=grace_ms
        )
        buffers = (buffer,)
        if given is None:
            drawing.note_unnamed(buffer.name)
    keyed = drawing.keyed(name, joiner, 2)
    op = ops.StreamTableJoin(view, joiner, keyed, left, buffers[0].name if buffers else None, grace_ms)
    node = StepNode(name, op, buffers, stores_of(view))
    node.relaxed_null_keys = left
    drawing.add(stream._node, node)
    return KStream(drawing, node, name, key, None, sources, False)


def _join_global(
    stream: KStream, table: GlobalKTable, joiner: Function, left: bool, *, select: Function, name: str | None = None
) -> KStream:
    from headwater.dsl.stream import KStream

    drawing = stream._drawing
    name = drawing.named(name, "KSTREAM-LEFTJOIN-")
    drawing.check(name, select, 2)
    op = ops.GlobalTableJoin(table.view(), select, joiner, drawing.keyed(name, joiner, 2), left)
    node = StepNode(name, op)
    node.relaxed_null_keys = left
    drawing.add(stream._node, node)
    return KStream(drawing, node, name, stream._key, None, stream._sources, stream._repartition)


def join_tables(
    left: KTable,
    right: KTable,
    joiner: Function,
    kind: Kind,
    store: str | StoreDescription | None,
    value: Serde | None,
    name: str | None,
) -> KTable:
    """Two tables joined by key."""
    drawing = left._drawing
    materialized = None
    if store is not None or value is not None:
        materialized = drawing.materialized(store, "KTABLE-MERGE-", left._key, value)
    given, name = name, drawing.named(name, "KTABLE-MERGE-")
    sources = drawing.copartition(left._sources, right._sources)
    if kind != "inner":
        left.enable_old(True)
    if kind == "outer":
        right.enable_old(True)
    # Kafka Streams materializes a join whenever a Materialized is passed, named or not; API.md: only `store=` does.
    spec = None
    if materialized is not None and store is not None:
        spec = materialized.key_value(drawing.default_key, drawing.default_value)
    key = materialized.key if materialized and materialized.key else left._key
    value = materialized.value if materialized else None
    keyed = drawing.keyed(name, joiner, 2)
    table = JoinedTable(left, right, joiner, keyed, kind, spec)
    sides = (
        drawing.suffixed(given, "-join-this", "KTABLE-JOINTHIS-"),
        drawing.suffixed(given, "-join-other", "KTABLE-JOINOTHER-"),
    )
    node = TableJoinNode(
        name,
        sides,
        (left._node, right._node),
        (left._name, right._name),
        table.side,
        table,
        (stores_of(left.view()), stores_of(right.view())),
    )
    node.output_versioned = spec is not None and spec.kind == "versioned"
    drawing.add(left._node, node)
    drawing.add(right._node, node)
    return KTable(drawing, node, name, key, value, sources, table)
