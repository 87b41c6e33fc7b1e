"""The registry: topologies with repartitions, each with what plain Python says must come out of it.

Each draws into a builder that others may draw into too, and writes to the topic of its own name. So all of a group run
as one application where time is short, and each alone where it is not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

from headwater import (
    Int64,
    JoinWindows,
    Json,
    KStream,
    SessionWindows,
    SlidingWindows,
    Str,
    StreamsBuilder,
    Suppress,
    TimeWindows,
    Topology,
    Versioned,
    Window,
)
from headwater.dsl.partitioner import partition_for
from headwater.dsl.serde import Serde
from tests.backfill.inputs import (
    END,
    PARTITIONS,
    Event,
    Inputs,
    amount_of,
    city_of,
    number_of,
    peer_of,
    region_of,
)
from tests.backfill.results import Key, Row

SECOND = timedelta(seconds=1)
GRACE = 10 * SECOND
MINUTE_MS, HOP_MS, CLOSING_MS, SLIDE_MS, GAP_MS = 60_000, 20_000, 10_000, 5_000, 2_000
NEAR_MS, GRACE_MS = 10_000, 10_000


def moved(order: str, user: str) -> str:
    """An order in the city of its user."""
    return f"{number_of(order)} {city_of(user)} {amount_of(order)}"


class Sources:
    """The streams and tables of a topology, each made by the first who asks for it; all topics begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.builder = StreamsBuilder(key=Str(), value=Str())

    def topic(self, name: str) -> str:
        return self._prefix + name

    @cached_property
    def orders(self) -> Any:
        return self.builder.stream(self.topic("orders"))

    @cached_property
    def clicks(self) -> Any:
        return self.builder.stream(self.topic("clicks"))

    @cached_property
    def users(self) -> Any:
        return self.builder.table(self.topic("users"))

    @cached_property
    def members(self) -> Any:
        return self.builder.table(self.topic("members"))

    @cached_property
    def profiles(self) -> Any:
        return self.builder.table(self.topic("profiles"))

    @cached_property
    def places(self) -> Any:
        return self.builder.table(self.topic("places"))

    @cached_property
    def prices(self) -> Any:
        return self.builder.table(self.topic("prices"), store=Versioned("prices", retention=timedelta(minutes=10)))

    @cached_property
    def regrouped(self) -> Any:
        """Orders joined with their users, by the users' cities."""
        joined = self.orders.join(self.users, moved)
        return joined.select_key(lambda key, value: city_of(value)).repartition(name="by-city", value=Str())


# Draws a topology and gives what is written; its steps' names begin with the name.
Draw = Callable[[Sources, str], KStream]


@dataclass(frozen=True)
class Case:
    """One topology of the registry."""

    name: str
    draw: Draw
    expected: Callable[[Inputs], list[Row]]
    # "all": every result counts, in any order; "last": what each key ends with.
    compare: Literal["all", "last"]
    # The serde of values, where the steps do not know it.
    value: Serde | None = None
    # Whether all runs agree on the results' timestamps, and whether on their headers.
    timestamps: bool = True
    headers: bool = False
    # Which results are compared, where some are still to come at the end.
    settled: Callable[[Row], bool] = lambda row: True
    # How many records are in a result, where each input record is in exactly one or is counted as dropped or late.
    records: Callable[[Row], int] | None = None


CASES: dict[str, Case] = {}


def case(
    name: str, expected: Callable[[Inputs], list[Row]], compare: Literal["all", "last"], **options: Any
) -> Callable[[Draw], Draw]:
    """Enter a topology into the registry."""

    def enter(draw: Draw) -> Draw:
        CASES[name] = Case(name, draw, expected, compare, **options)
        return draw

    return enter


def build(names: Iterable[str], prefix: str = "") -> Topology:
    """Some topologies of the registry as one."""
    sources = Sources(prefix)
    for name in names:
        CASES[name].draw(sources, name).to(sources.topic(name), value=CASES[name].value)
    return sources.builder.build()


def read_by(topology: Topology, prefix: str = "") -> set[str]:
    """The input topics of a topology, without their prefix."""
    read = {topic for source in topology.sources() for topic in source.topics} - set(topology.internal_topics)
    return {topic.removeprefix(prefix) for topic in read}


# ---- windows ---------------------------------------------------------------------------------------------------------


def nothing() -> list[int]:
    """How many records, and the sum of their amounts."""
    return [0, 0]


def add(key: str, value: str, seen: list[int]) -> list[int]:
    return [seen[0] + 1, seen[1] + amount_of(value)]


def add_sessions(key: str, one: list[int], other: list[int]) -> list[int]:
    return [one[0] + other[0], one[1] + other[1]]


def by_city(stream: Any, name: str) -> Any:
    return stream.group_by(lambda key, value: city_of(value), key=Str(), value=Str(), name=name)


def count_of(row: Row) -> int:
    return int(row.value[0])


def gathered(events: Iterable[tuple[str, Event]], windows: Callable[[int], Iterable[tuple[int, int]]]) -> list[Row]:
    """Count, sum and highest timestamp of the events of each key, in each window they are in."""
    kept: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for key, event in events:
        for start, end in windows(event.timestamp):
            found = kept[key, start, end]
            kept[key, start, end] = [found[0] + 1, found[1] + event.amount, max(found[2], event.timestamp)]
    return [Row(key, found[:2], found[2]) for key, found in kept.items()]


def tumbled(size_ms: int) -> Callable[[int], list[tuple[int, int]]]:
    def windows(at: int) -> list[tuple[int, int]]:
        start = at // size_ms * size_ms
        return [(start, start + size_ms)]

    return windows


def hopped(at: int) -> list[tuple[int, int]]:
    last = at // HOP_MS * HOP_MS
    return [(start, start + MINUTE_MS) for start in range(last, last - MINUTE_MS, -HOP_MS)]


def cities(events: Iterable[Event]) -> list[tuple[str, Event]]:
    return [(event.city, event) for event in events]


def tumbling_rows(inputs: Inputs) -> list[Row]:
    return gathered(cities(inputs.orders), tumbled(MINUTE_MS))


@case("tumbling", tumbling_rows, "last", records=count_of)
def tumbling(sources: Sources, name: str) -> KStream:
    windows = TimeWindows.of(60 * SECOND, grace=GRACE)
    grouped = by_city(sources.orders, name).windowed_by(windows)
    return grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step").to_stream()


@case("hopping", lambda inputs: gathered(cities(inputs.orders), hopped), "last")
def hopping(sources: Sources, name: str) -> KStream:
    windows = TimeWindows.of(60 * SECOND, grace=GRACE, advance=20 * SECOND)
    grouped = by_city(sources.orders, name).windowed_by(windows)
    return grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step").to_stream()


def sliding_rows(inputs: Inputs) -> list[Row]:
    """A window that ends with each record, and one that begins right after it, unless that one is empty."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for order in inputs.orders:
        by_key[order.city].append(order)
    rows = []
    for city, events in by_key.items():
        starts = {edge for e in events for edge in (e.timestamp - SLIDE_MS, e.timestamp + 1)}
        for start in starts:
            inside = [e for e in events if start <= e.timestamp <= start + SLIDE_MS]
            if inside:
                value = [len(inside), sum(e.amount for e in inside)]
                rows.append(Row((city, start, start + SLIDE_MS), value, max(e.timestamp for e in inside)))
    return rows


@case("sliding", sliding_rows, "last")
def sliding(sources: Sources, name: str) -> KStream:
    grouped = by_city(sources.orders, name).windowed_by(SlidingWindows.of(5 * SECOND, grace=GRACE))
    return grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step").to_stream()


def sessions(events: Iterable[tuple[str, Event]]) -> list[Row]:
    by_key: dict[str, list[Event]] = defaultdict(list)
    for key, event in events:
        by_key[key].append(event)
    rows = []
    for key, found in by_key.items():
        found.sort(key=lambda event: event.timestamp)
        session: list[Event] = []
        for event in [*found, None]:
            if session and (event is None or event.timestamp - session[-1].timestamp > GAP_MS):
                first, last = session[0].timestamp, session[-1].timestamp
                rows.append(Row((key, first, last), [len(session), sum(e.amount for e in session)], last))
                session = []
            if event is not None:
                session.append(event)
    return rows


@case("session", lambda inputs: sessions(cities(inputs.orders)), "last", records=count_of)
def session(sources: Sources, name: str) -> KStream:
    windows = SessionWindows.of(2 * SECOND, grace=GRACE)
    grouped = by_city(sources.orders, name).windowed_by(windows)
    return grouped.aggregate(nothing, add, merge=add_sessions, value=Json(), name=f"{name}-step").to_stream()


def closed(rows: Iterable[Row]) -> list[Row]:
    """Those windows that are closed for the task that keeps them: as its own records go, with the grace."""
    rows = list(rows)
    times: dict[int, int] = defaultdict(int)
    for row in rows:
        partition = partition_for(row.key[0].encode(), PARTITIONS)
        times[partition] = max(times[partition], row.timestamp)
    return [r for r in rows if r.key[2] + GRACE_MS <= times[partition_for(r.key[0].encode(), PARTITIONS)]]


def closing_rows(inputs: Inputs) -> list[Row]:
    return closed(gathered(cities(inputs.orders), tumbled(CLOSING_MS)))


@case("suppress", closing_rows, "all")
def suppress(sources: Sources, name: str) -> KStream:
    windows = TimeWindows.of(10 * SECOND, grace=GRACE)
    grouped = by_city(sources.orders, name).windowed_by(windows)
    counted = grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step")
    return counted.suppress(Suppress.until_window_closes(), name=f"{name}-until-closed").to_stream()


@case("on-close", closing_rows, "all")
def on_close(sources: Sources, name: str) -> KStream:
    """Kept for longer than until they close: where stream time leaps over that, closed windows are lost, here as in
    Kafka Streams."""
    windows = TimeWindows.of(10 * SECOND, grace=GRACE)
    grouped = by_city(sources.orders, name).windowed_by(windows).emit_strategy("on-close")
    kept = Window(value=Json(), retention=timedelta(minutes=2))
    return grouped.aggregate(nothing, add, store=kept, name=f"{name}-step").to_stream()


def user_cities(inputs: Inputs) -> list[tuple[str, Event]]:
    city = {user.key: user.city for user in inputs.users}
    return [(city[order.key], order) for order in inputs.orders]


@case("table-window", lambda inputs: gathered(user_cities(inputs), tumbled(MINUTE_MS)), "last", records=count_of)
def table_window(sources: Sources, name: str) -> KStream:
    """A table joined, what it says grouped by, and windows of that."""
    joined = sources.orders.join(sources.users, moved, name=f"{name}-join")
    grouped = by_city(joined, name).windowed_by(TimeWindows.of(60 * SECOND, grace=GRACE))
    return grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step").to_stream()


def cogroup_rows(inputs: Inputs) -> list[Row]:
    return gathered(cities([*inputs.orders, *inputs.clicks]), tumbled(MINUTE_MS))


@case("cogroup", cogroup_rows, "last", records=count_of)
def cogroup(sources: Sources, name: str) -> KStream:
    """Two streams, both repartitioned, into one window."""
    one, other = by_city(sources.orders, f"{name}-orders"), by_city(sources.clicks, f"{name}-clicks")
    windowed = one.cogroup(add).cogroup(other, add).windowed_by(TimeWindows.of(60 * SECOND, grace=GRACE))
    return windowed.aggregate(nothing, value=Json(), name=f"{name}-step").to_stream()


def nested_rows(inputs: Inputs) -> list[Row]:
    rows = gathered([(region_of(order.city), order) for order in inputs.orders], tumbled(MINUTE_MS))
    return [Row(row.key, row.value[0], row.timestamp) for row in rows]


@case("window-of-windows", nested_rows, "last", timestamps=False, records=lambda row: row.value)
def window_of_windows(sources: Sources, name: str) -> KStream:
    """How often the windows of 10 s have changed, in each minute and region."""
    inner = by_city(sources.orders, name).windowed_by(TimeWindows.of(10 * SECOND, grace=GRACE))
    changes = inner.count(name=f"{name}-step-one").to_stream().map(lambda key, count: (key.key, "1"))
    grouped = changes.group_by(lambda key, value: region_of(key), key=Str(), value=Str(), name=f"{name}-again")
    return grouped.windowed_by(TimeWindows.of(60 * SECOND, grace=GRACE)).count(name=f"{name}-step-two").to_stream()


@case("late-for-window", lambda inputs: gathered(cities(inputs.orders), tumbled(1_000)), "last", records=count_of)
def late_for_window(sources: Sources, name: str) -> KStream:
    """Windows without a grace, for which some records are late in whatever order they come."""
    grouped = by_city(sources.orders, name).windowed_by(TimeWindows.of(SECOND))
    return grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step").to_stream()


# ---- a stream and its own copy ---------------------------------------------------------------------------------------


def merged_rows(inputs: Inputs) -> list[Row]:
    both = [(key, order) for order in inputs.orders for key in (order.key, order.peer)]
    return gathered(both, tumbled(MINUTE_MS))


@case("merged-with-itself", merged_rows, "last", records=count_of)
def merged_with_itself(sources: Sources, name: str) -> KStream:
    """Orders of each key, and of the peer: the same stream, repartitioned."""
    copy = sources.orders.select_key(lambda key, value: peer_of(value)).repartition(name=name)
    grouped = sources.orders.merge(copy).group_by_key().windowed_by(TimeWindows.of(60 * SECOND, grace=GRACE))
    return grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step").to_stream()


def copied_rows(inputs: Inputs) -> list[Row]:
    """How many records each key has, whose copies all come after them: there are none before."""
    counts = Counter(order.key for order in inputs.orders)
    return [Row((key, 0, 0), [2 * count, 0], 0) for key, count in counts.items()]


def after_its_copy(key: str, value: str, seen: list[Any]) -> list[Any]:
    """How many have come, how many copies came before what they are copies of, and who waits for a copy."""
    count, early, waiting = seen[0] + 1, seen[1], seen[2]
    who, number = value.split()
    if who == "direct":
        return [count, early, [*waiting, number]]
    return [count, early + (number not in waiting), [one for one in waiting if one != number]]


@case("copies-at-equal-times", copied_rows, "last", value=Json(), timestamps=False)
def copies_at_equal_times(sources: Sources, name: str) -> KStream:
    """A copy has its original's timestamp and comes after it, since it is repartitioned."""
    direct = sources.orders.map_values(lambda value: f"direct {number_of(value)}")
    copy = sources.orders.map_values(lambda value: f"copy {number_of(value)}").repartition(name=name, value=Str())
    counted = (
        direct.merge(copy)
        .group_by_key(value=Str())
        .aggregate(lambda: [0, 0, []], after_its_copy, value=Json(), name=f"{name}-step")
    )
    return counted.map_values(lambda seen: seen[:2]).to_stream()


# ---- joins -----------------------------------------------------------------------------------------------------------


def pairs(inputs: Inputs, key: Callable[[Event], str], near_ms: int) -> list[Row]:
    """Orders and clicks of one key whose timestamps are near each other."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for click in inputs.clicks:
        by_key[key(click)].append(click)
    return [
        Row((key(order), 0, 0), [order.number, click.number], max(order.timestamp, click.timestamp))
        for order in inputs.orders
        for click in by_key[key(order)]
        if abs(order.timestamp - click.timestamp) <= near_ms
    ]


def left_pairs(inputs: Inputs) -> list[Row]:
    found = pairs(inputs, lambda event: event.peer, NEAR_MS)
    matched = {row.value[0] for row in found}
    alone = [Row((o.peer, 0, 0), [o.number, None], o.timestamp) for o in inputs.orders if o.number not in matched]
    return found + alone


def pair(order: str, click: str | None) -> list[int | None]:
    return [number_of(order), None if click is None else number_of(click)]


@case("stream-join", lambda inputs: pairs(inputs, lambda event: event.city, 1_000), "all", value=Json())
def stream_join(sources: Sources, name: str) -> KStream:
    left, right = (s.select_key(lambda key, value: city_of(value)) for s in (sources.orders, sources.clicks))
    return left.join(right, pair, JoinWindows.of(SECOND, grace=GRACE), name=name)


# An order that comes after the end of its window has been reached is written without a click at once, as in Kafka
# Streams: so the window is wider than the disorder. One without a click is written when the window has closed and
# another record comes: near the end, not all are.
@case("stream-left-join", left_pairs, "all", value=Json(), settled=lambda row: row.timestamp < END - MINUTE_MS)
def stream_left_join(sources: Sources, name: str) -> KStream:
    left, right = (s.select_key(lambda key, value: peer_of(value)) for s in (sources.orders, sources.clicks))
    return left.left_join(right, pair, JoinWindows.of(10 * SECOND, grace=GRACE), name=name)


def priced(inputs: Inputs) -> list[Row]:
    by_city: dict[str, list[Event]] = defaultdict(list)
    for price in inputs.prices:
        by_city[price.key].append(price)
    rows = []
    for order in inputs.orders:
        price = [one for one in by_city[order.city] if one.timestamp <= order.timestamp][-1]
        rows.append(Row((order.city, 0, 0), [order.number, price.number], order.timestamp, order.headers))
    return rows


@case("as-of-join", priced, "all", value=Json(), headers=True)
def as_of_join(sources: Sources, name: str) -> KStream:
    """The price at an order's own time, though both go on changing."""
    ordered = sources.orders.select_key(lambda key, value: city_of(value))
    return ordered.join(sources.prices, lambda order, price: [number_of(order), number_of(price)], name=name)


@case("late-for-join", lambda inputs: pairs(inputs, lambda event: event.city, 1_000), "all", value=Json())
def late_for_join(sources: Sources, name: str) -> KStream:
    """A join without a grace, for which some records are late in whatever order they come."""
    left, right = (s.select_key(lambda key, value: city_of(value)) for s in (sources.orders, sources.clicks))
    return left.join(right, pair, JoinWindows.of(SECOND), name=name)


# ---- counts and tables -----------------------------------------------------------------------------------------------


def counted(keys: Iterable[tuple[str, int]]) -> list[Row]:
    counts: Counter[str] = Counter()
    times: dict[str, int] = defaultdict(int)
    for key, at in keys:
        counts[key] += 1
        times[key] = max(times[key], at)
    return [Row((key, 0, 0), count, times[key]) for key, count in counts.items()]


@case("count", lambda inputs: counted((o.city, o.timestamp) for o in inputs.orders), "last")
def count(sources: Sources, name: str) -> KStream:
    return by_city(sources.orders, name).count(name=f"{name}-step").to_stream()


def regions(inputs: Inputs) -> list[Row]:
    return counted((region_of(order.city), order.timestamp) for order in inputs.orders)


@case("count-behind-two", regions, "last")
def count_behind_two(sources: Sources, name: str) -> KStream:
    """Repartitioned twice, then counted."""
    once = sources.orders.select_key(lambda key, value: city_of(value)).repartition(name=f"{name}-once")
    twice = once.group_by(lambda key, value: region_of(key), name=f"{name}-twice")
    return twice.count(name=f"{name}-step").to_stream()


def add_number(key: str, value: int, total: int) -> int:
    return total + value


def take_number(key: str, value: int, total: int) -> int:
    return total - value


@case("count-regrouped", regions, "last")
def count_regrouped(sources: Sources, name: str) -> KStream:
    """Counts of cities, summed by region as they change."""
    counts = by_city(sources.orders, name).count(name=f"{name}-step")
    again = f"{name}-again"
    grouped = counts.group_by(lambda city, count: (region_of(city), count), key=Str(), value=Int64(), name=again)
    return grouped.aggregate(int, add_number, take_number, value=Int64(), name=f"{name}-sum").to_stream()


def latest(events: Iterable[Event]) -> dict[str, Event]:
    return {event.key: event for event in events}


def add_amount(key: str, value: str, total: int) -> int:
    return total + amount_of(value)


def take_amount(key: str, value: str, total: int) -> int:
    return total - amount_of(value)


def both(member: str, profile: str) -> str:
    """A member's city with the sum of both amounts."""
    return f"{number_of(member)} {city_of(member)} {amount_of(member) + amount_of(profile)}"


def joined_members(inputs: Inputs) -> list[tuple[str, int]]:
    """City and amount of each member that has a profile: all of them have."""
    profiles = latest(inputs.profiles)
    return [(m.city, m.amount + profiles[key].amount) for key, m in latest(inputs.members).items()]


def summed(inputs: Inputs, amounts: Iterable[tuple[str, int]], groups: Iterable[str]) -> list[Row]:
    """The sum of each group; that of a group all of whose rows have left it is 0."""
    totals = dict.fromkeys(groups, 0)
    for group, amount in amounts:
        totals[group] += amount
    return [Row((group, 0, 0), total, 0) for group, total in totals.items()]


def table_rows(inputs: Inputs) -> list[Row]:
    return summed(inputs, joined_members(inputs), {member.city for member in inputs.members})


# Which rows a group has had for a while depends on which of two tables changed first, and so does its timestamp.
@case("tables-regrouped", table_rows, "last", timestamps=False)
def tables_regrouped(sources: Sources, name: str) -> KStream:
    joined = sources.members.join(sources.profiles, both, name=f"{name}-join")
    grouped = joined.group_by(lambda key, value: (city_of(value), value), key=Str(), value=Str(), name=name)
    return grouped.aggregate(int, add_amount, take_amount, value=Int64(), name=f"{name}-step").to_stream()


def foreign_rows(inputs: Inputs) -> list[Row]:
    places = latest(inputs.places)
    amounts = [(places[city].city, amount + places[city].amount) for city, amount in joined_members(inputs)]
    return summed(inputs, amounts, {places[member.city].city for member in inputs.members})


@case("foreign-key-join", foreign_rows, "last", timestamps=False)
def foreign_key_join(sources: Sources, name: str) -> KStream:
    """A foreign-key join behind a join, and another repartition behind it."""
    joined = sources.members.join(sources.profiles, both, name=f"{name}-join", store=f"{name}-joined", value=Str())
    placed = joined.join(
        sources.places,
        lambda member, place: f"{number_of(member)} {city_of(place)} {amount_of(member) + amount_of(place)}",
        foreign_key=city_of,
        name=f"{name}-foreign",
        store=f"{name}-placed",
        value=Str(),
    )
    grouped = placed.group_by(lambda key, value: (city_of(value), value), key=Str(), value=Str(), name=name)
    return grouped.aggregate(int, add_amount, take_amount, value=Int64(), name=f"{name}-step").to_stream()


# ---- join, regroup, window, session, suppress ------------------------------------------------------------------------


@case("shop-window", lambda inputs: gathered(user_cities(inputs), tumbled(MINUTE_MS)), "last", records=count_of)
def shop_window(sources: Sources, name: str) -> KStream:
    grouped = sources.regrouped.group_by_key(value=Str()).windowed_by(TimeWindows.of(60 * SECOND, grace=GRACE))
    return grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step").to_stream()


@case("shop-session", lambda inputs: sessions(user_cities(inputs)), "last", records=count_of)
def shop_session(sources: Sources, name: str) -> KStream:
    grouped = sources.regrouped.group_by_key(value=Str()).windowed_by(SessionWindows.of(2 * SECOND, grace=GRACE))
    return grouped.aggregate(nothing, add, merge=add_sessions, value=Json(), name=f"{name}-step").to_stream()


@case("shop-suppress", lambda inputs: closed(gathered(user_cities(inputs), tumbled(CLOSING_MS))), "all")
def shop_suppress(sources: Sources, name: str) -> KStream:
    grouped = sources.regrouped.group_by_key(value=Str()).windowed_by(TimeWindows.of(10 * SECOND, grace=GRACE))
    counted = grouped.aggregate(nothing, add, value=Json(), name=f"{name}-step")
    return counted.suppress(Suppress.until_window_closes(), name=f"{name}-until-closed").to_stream()


# ---- which run together ----------------------------------------------------------------------------------------------

# A group is an application. What goes round in a circle on Spark is by itself.
GROUPS: dict[str, tuple[str, ...]] = {
    "windows": ("tumbling", "hopping", "sliding", "session", "suppress", "on-close"),
    "behind": ("table-window", "window-of-windows"),
    "joins": ("stream-join", "stream-left-join", "as-of-join", "cogroup"),
    "counts": ("count", "count-behind-two", "count-regrouped"),
    "tables": ("tables-regrouped", "foreign-key-join"),
    "merged": ("merged-with-itself",),
    "ties": ("copies-at-equal-times",),
    "shop": ("shop-window", "shop-session", "shop-suppress"),
}
# Those that drop records, and must count them.
LATE = ("late-for-window", "late-for-join")
