"""Windowed groups: aggregates per key and window of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from headwater.dsl import ops
from headwater.dsl.aggregates import Aggregate, over_expressions
from headwater.dsl.camel import CamelCase
from headwater.dsl.counts import plus_one, zero
from headwater.dsl.ops import Emit, Function, Op
from headwater.dsl.serde import Int64, Json, Serde, SessionWindowed, TimeWindowed
from headwater.dsl.stores import Session, StoreDescription, Window
from headwater.dsl.topology import StoreSpec
from headwater.dsl.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

if TYPE_CHECKING:
    from headwater.dsl.drawing import Drawing, Materialized
    from headwater.dsl.grouped import KGroupedStream
    from headwater.dsl.table import KTable

Windows = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows


def window_store(
    drawing: Drawing, step: str, materialized: Materialized, windows: Windows, on_close: bool
) -> StoreSpec:
    """The store of a windowed aggregate: as long as its windows may still change, or longer if asked for."""
    if isinstance(windows, SessionWindows):
        size_ms, length, needs = 0, windows.gap_ms, "the gap plus the grace"
    elif isinstance(windows, SlidingWindows):
        size_ms, length = windows.difference_ms, 2 * windows.difference_ms
        needs = "twice the time difference plus the grace"
    else:
        size_ms, length, needs = windows.size_ms, windows.size_ms, "the window size plus the grace"
    # A store keeps what is younger than its retention: windows of one moment need a millisecond to be kept at all.
    least = max(length, 1) + windows.grace_ms
    if not length:
        needs = "1 ms plus the grace"
    session = isinstance(windows, SessionWindows)
    wanted = Session if session else Window
    description = materialized.description or wanted()
    if not isinstance(description, wanted):
        drawing.fault(
            step,
            f"store {materialized.name!r}: these windows are kept in a {wanted.__name__} store, not in a "
            f"{type(description).__name__}: write store={wanted.__name__}({description.name!r}, ...)",
        )
        description = wanted()
    if isinstance(description, Window) and description.duplicates:
        drawing.fault(
            step, f"store {materialized.name!r}: an aggregate keeps one row per window: leave out duplicates=True"
        )
    retention_ms = least if description.retention_ms is None else description.retention_ms
    if retention_ms < least:
        drawing.fault(
            step, f"store {materialized.name!r}: retention must be at least {needs}: {least} ms, not {retention_ms}"
        )
    if isinstance(description, Window) and description.size_ms not in (None, size_ms):
        drawing.fault(
            step,
            f"store {materialized.name!r}: size is {description.size_ms} ms, but the windows' own is {size_ms} ms: "
            "leave it out",
        )
    return StoreSpec(
        "session" if session else "window",
        materialized.name,
        materialized.key or drawing.default_key,
        materialized.value or drawing.default_value,
        timestamped=not session,
        retention_ms=retention_ms,
        size_ms=size_ms,
        on_close=on_close,
        # Of what is emitted on close, Kafka Streams caches tumbling and hopping windows only.
        cached=description.cached is not False
        and not (on_close and isinstance(windows, SessionWindows | SlidingWindows)),
        changelog=description.changelog,
        memory=description.memory,
    )


def windowed_key(drawing: Drawing, key: Serde | None, windows: Windows) -> Serde:
    """The serde of the result's Windowed keys."""
    key = key or drawing.default_key
    if isinstance(windows, SessionWindows):
        return SessionWindowed(key)
    size_ms = windows.difference_ms if isinstance(windows, SlidingWindows) else windows.size_ms
    return TimeWindowed.of_ms(key, size_ms)


def grace_of(windows: Windows) -> int:
    """How long after a window's end its results may still change."""
    return windows.grace_ms + (windows.gap_ms if isinstance(windows, SessionWindows) else 0)


def windowed_op(
    windows: Windows,
    store: str,
    init: Function | None,
    f: Function,
    merge: Function | None,
    on_close: bool,
    send_old: bool,
    emit: Emit = "per-record",
) -> Op:
    """The operator for this kind of windows."""
    if isinstance(windows, SessionWindows):
        return ops.SessionAggregate(store, windows, init, f, merge, on_close, send_old, emit)
    if isinstance(windows, SlidingWindows):
        return ops.SlidingWindowAggregate(store, windows, init, f, on_close, send_old, emit)
    return ops.TimeWindowAggregate(store, windows, init, f, on_close, send_old, emit)


class _Windowed(CamelCase):
    def __init__(self, grouped: KGroupedStream, windows: Windows, on_close: bool = False) -> None:
        self._grouped = grouped
        self._windows = windows
        self._on_close = on_close

    def count(self, *, store: str | StoreDescription | None = None, name: str | None = None) -> KTable:
        """The number of records per key and window; null values count, null keys are dropped and counted as such.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> counts = (builder.stream("in").group_by_key()
        ...     .windowed_by(TimeWindows.of(timedelta(seconds=10))).count(store="counts"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "x", at=12_000)
        ...     list(driver.store("counts").all())
        [(Windowed(key='k', start=10000, end=20000), 1)]
        """
        self._grouped._burn_unnamed(store)
        merge = _add_counts if isinstance(self._windows, SessionWindows) else None
        return self._aggregate("KSTREAM-AGGREGATE-", store, name, zero, plus_one, merge, self._grouped._key, Int64())

    def reduce(self, f: Function, *, store: str | StoreDescription | None = None, name: str | None = None) -> KTable:
        """The values per key and window, folded by `f(aggregate, value)`; the first is taken as it is.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=10)))
        ...     .reduce(max).to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 3, at=12_000)
        ...     [record.value for record in driver.output("out").read_all()]
        [3]
        """
        grouped = self._grouped
        return self._aggregate("KSTREAM-REDUCE-", store, name, None, f, None, grouped._key, grouped._value)

    def _aggregate(
        self,
        prefix: str,
        store: str | StoreDescription | None,
        name: str | None,
        init: Function | None,
        f: Function,
        merge: Function | None,
        key: Serde | None,
        value: Serde | None,
        emit: Emit = "per-record",
        faults: Iterable[str] = (),
    ) -> KTable:
        grouped, windows, on_close = self._grouped, self._windows, self._on_close
        drawing = grouped._drawing
        materialized = drawing.materialized(store, prefix, key, value)
        name = drawing.named(name, prefix)
        grouped._check_functions(name, init, f, faults)
        if merge is not None:
            drawing.check(name, merge, 3)
        if on_close and isinstance(windows, UnlimitedWindows):
            drawing.fault(name, 'emit_strategy("on-close") needs windows that close: UnlimitedWindows never do')
        if on_close and emit == "per-batch":
            drawing.fault(name, 'emit="per-batch" emits open windows, emit_strategy("on-close") does not: choose one')
        return grouped._table(
            name,
            materialized,
            grouped._stored(window_store(drawing, name, materialized, windows, on_close), f),
            lambda store, send_old: windowed_op(windows, store, init, f, merge, on_close, send_old, emit),
            windowed_key(drawing, materialized.key, windows),
            materialized.value,
            grace_ms=grace_of(windows),
            emit=emit,
        )

    def _aggregate_over(
        self, given: tuple[Any, ...], named: dict[str, Any], options: dict[str, Any], emit: Emit
    ) -> KTable | None:
        """The table of aggregates over expressions; None if functions were given."""
        over = over_expressions(given, named, options, emit)
        if over is None:
            return None
        aggregator, faults = over
        return self._aggregate(
            "KSTREAM-AGGREGATE-",
            options["store"],
            options["name"],
            aggregator.init,
            aggregator,
            aggregator.merge if isinstance(self._windows, SessionWindows) else None,
            options["key"] or self._grouped._key,
            options["value"] or Json(),
            emit,
            faults,
        )


class WindowedKStream(_Windowed):
    """A grouped stream per time window: tumbling, hopping, sliding or unlimited."""

    def emit_strategy(self, when: Literal["on-update", "on-close"]) -> WindowedKStream:
        """Emit each update of a window, or only its final result once stream time has passed its end and grace.

        On close, at most once per `Config.window_emit_interval` of wall-clock time, by (start, key).

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        ...     .emit_strategy("on-close").count().to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build(), now=1) as driver:
        ...     for at in (0, 500, 1000):
        ...         driver.input("in").send("k", "x", at=at)
        ...     [(record.key.start, record.value) for record in driver.output("out").read_all()]
        [(0, 2)]
        """
        return WindowedKStream(self._grouped, self._windows, _closes(self._grouped, when))

    @overload
    def aggregate(
        self,
        init: Function,
        f: Function,
        *,
        store: str | StoreDescription | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable: ...
    @overload
    def aggregate(
        self,
        *aggregates: Aggregate,
        store: str | StoreDescription | Aggregate | None = None,
        key: Serde | Aggregate | None = None,
        value: Serde | Aggregate | None = None,
        name: str | Aggregate | None = None,
        emit: Emit = "per-record",
        **named: Aggregate,
    ) -> KTable: ...
    def aggregate(
        self,
        init: Any = None,
        f: Any = None,
        *more: Any,
        store: Any = None,
        key: Any = None,
        value: Any = None,
        name: Any = None,
        emit: Emit = "per-record",
        **named: Any,
    ) -> KTable:
        """The records per key and window, folded by `f(key, value, aggregate)` from `init()`.

        A record whose window has closed (end + grace <= stream time) is dropped and counted as late. Aggregates over
        expressions, `aggregate(total=agg.sum(col("amount")))`, are taken as by a stream without windows.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=10)))
        ...     .aggregate(lambda: 0.0, lambda key, value, total: total + value).to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 2.5, at=12_000)
        ...     [record.value for record in driver.output("out").read_all()]
        [2.5]
        """
        options = {"store": store, "key": key, "value": value, "name": name}
        over = self._aggregate_over((init, f, *more), named, options, emit)
        if over is not None:
            return over
        key = key or self._grouped._key
        return self._aggregate("KSTREAM-AGGREGATE-", store, name, init, f, None, key, value)


class SessionWindowedKStream(_Windowed):
    """A grouped stream per session."""

    def emit_strategy(self, when: Literal["on-update", "on-close"]) -> SessionWindowedKStream:
        """Emit each update of a session, or only its final result once no record can reach it any more.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder
        >>> sessions = (StreamsBuilder().stream("in").group_by_key()
        ...     .windowed_by(SessionWindows.of(timedelta(minutes=5))).emit_strategy("on-close"))
        """
        return SessionWindowedKStream(self._grouped, self._windows, _closes(self._grouped, when))

    @overload
    def aggregate(
        self,
        init: Function,
        f: Function,
        *,
        merge: Function,
        store: str | StoreDescription | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable: ...
    @overload
    def aggregate(
        self,
        *aggregates: Aggregate,
        store: str | StoreDescription | Aggregate | None = None,
        key: Serde | Aggregate | None = None,
        value: Serde | Aggregate | None = None,
        name: str | Aggregate | None = None,
        emit: Emit = "per-record",
        **named: Aggregate,
    ) -> KTable: ...
    def aggregate(
        self,
        init: Any = None,
        f: Any = None,
        *more: Any,
        merge: Any = None,
        store: Any = None,
        key: Any = None,
        value: Any = None,
        name: Any = None,
        emit: Emit = "per-record",
        **named: Any,
    ) -> KTable:
        """The records per key and session, folded by `f(key, value, aggregate)`; `merge(key, a, b)` joins sessions.

        Before a merged session, each one it absorbed is emitted with a null value. Aggregates over expressions,
        `aggregate(total=agg.sum(col("amount")))`, are taken as by a stream without windows, and need no `merge`.

        >>> from datetime import timedelta
        >>> from headwater import SessionWindows, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("in").group_by_key().windowed_by(SessionWindows.of(timedelta(seconds=5)))
        ...     .aggregate(lambda: 0, lambda k, v, n: n + v, merge=lambda k, a, b: a + b).to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        ...     driver.input("in").send("k", 2, at=3000)
        ...     [(record.key.end, record.value) for record in driver.output("out").read_all()]
        [(0, 1), (0, None), (3000, 3)]
        """
        options = {"store": store, "key": key, "value": value, "name": name}
        over = self._aggregate_over((init, f, *more), named, options, emit)
        if over is not None:
            return over
        if merge is None:
            self._grouped._drawing.fault(self._grouped._name, "sessions need merge=, a function (key, a, b) of two")
        key = key or self._grouped._key
        return self._aggregate("KSTREAM-AGGREGATE-", store, name, init, f, merge, key, value)


def _closes(grouped: KGroupedStream, when: str) -> bool:
    if when not in ("on-update", "on-close"):
        grouped._drawing.fault(grouped._name, f'emit_strategy() takes "on-update" or "on-close", not {when!r}')
    return when == "on-close"


def _add_counts(key: Any, a: int, b: int) -> int:
    return a + b


