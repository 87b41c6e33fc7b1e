"""Everything is there before the start, spread over four partitions, and nothing in it is later than a grace: behind a
repartition the stages of a query then drop nothing and end where the test driver ends."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    Bytes,
    Config,
    JoinWindows,
    Json,
    SessionWindows,
    SlidingWindows,
    Str,
    StreamsBuilder,
    Suppress,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    Versioned,
    Window,
)
from tests.spark.line import Line

PARTITIONS = 4
COUNT = 3_000
START = 1_700_000_000_000
END = START + 200_000
DISORDER = 3_400
GRACE = timedelta(seconds=10)
MINUTE = TimeWindows.of(timedelta(minutes=1), grace=GRACE)
# A record: topic, key, value, timestamp.
Sent = tuple[str, str, Any, int]


def add(key: str, value: dict[str, Any], total: int) -> int:
    return total + int(value["amount"])


def city(key: str, value: dict[str, Any]) -> str:
    return str(value["city"])


def order(key: str, value: dict[str, Any]) -> str:
    return str(value["order"])


def merged(key: str, one: int, other: int) -> int:
    return one + other


def zero() -> int:
    return 0


def pair(one: Any, other: Any) -> list[Any]:
    return [one, other]


def tumbling(builder: StreamsBuilder) -> None:
    windows = builder.stream("orders").group_by(city).windowed_by(MINUTE)
    windows.aggregate(zero, add).to_stream().to("out")


def hopping(builder: StreamsBuilder) -> None:
    hops = TimeWindows.of(timedelta(minutes=1), advance=timedelta(seconds=20), grace=GRACE)
    builder.stream("orders").group_by(city).windowed_by(hops).aggregate(zero, add).to_stream().to("out")


def sliding(builder: StreamsBuilder) -> None:
    windows = SlidingWindows.of(timedelta(seconds=3), grace=GRACE)
    builder.stream("orders").group_by(city).windowed_by(windows).aggregate(zero, add).to_stream().to("out")


def session(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of(timedelta(milliseconds=300), grace=GRACE)
    grouped = builder.stream("orders").group_by(city).windowed_by(windows)
    grouped.aggregate(zero, add, merge=merged).to_stream().to("out")


def suppressed(builder: StreamsBuilder) -> None:
    totals = builder.stream("orders").group_by(city).windowed_by(MINUTE).aggregate(zero, add)
    totals.suppress(Suppress.until_window_closes()).to_stream().to("out")


def emit_on_close(builder: StreamsBuilder) -> None:
    windows = builder.stream("orders").group_by(city).windowed_by(MINUTE).emit_strategy("on-close")
    windows.aggregate(zero, add, store=Window(None, retention=timedelta(minutes=10))).to_stream().to("out")


def joined(builder: StreamsBuilder) -> None:
    by_order = builder.stream("orders").select_key(order)
    near = JoinWindows.of(timedelta(seconds=5), grace=GRACE)
    by_order.join(builder.stream("payments").select_key(order), pair, near).to("out")


def left_joined(builder: StreamsBuilder) -> None:
    by_order = builder.stream("orders").select_key(order)
    near = JoinWindows.of(timedelta(seconds=5), grace=GRACE)
    by_order.left_join(builder.stream("payments").select_key(order), pair, near).to("out")


def behind_a_table_join(builder: StreamsBuilder) -> None:
    users = builder.table("users")
    at_home = builder.stream("orders").join(users, lambda placed, user: placed | {"city": user["home"]})
    at_home.group_by(city).windowed_by(MINUTE).aggregate(zero, add).to_stream().to("out")


def cogrouped(builder: StreamsBuilder) -> None:
    payments = builder.stream("payments").group_by(city, name="paid")
    both = builder.stream("orders").group_by(city, name="ordered").cogroup(add).cogroup(payments, add)
    both.windowed_by(MINUTE).aggregate(zero).to_stream().to("out")


def merged_with_its_own_copy(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders")
    both = orders.merge(orders.select_key(city).repartition())
    both.group_by_key().windowed_by(MINUTE).aggregate(zero, add).to_stream().to("out")


def merged_with_its_own_copy_behind_a_join(builder: StreamsBuilder) -> None:
    users = builder.table("users")
    orders = builder.stream("orders").join(users, lambda placed, user: placed | {"city": user["home"]})
    both = orders.merge(orders.select_key(city).repartition())
    both.group_by_key().windowed_by(MINUTE).aggregate(zero, add).to_stream().to("out")


def merged_with_its_own_copy_behind_a_repartition(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders").select_key(order).repartition()
    both = orders.merge(orders.select_key(city).repartition())
    both.group_by_key().windowed_by(MINUTE).aggregate(zero, add).to_stream().to("out")


def window_behind_a_window(builder: StreamsBuilder) -> None:
    first = builder.stream("orders").group_by(city).windowed_by(MINUTE).aggregate(zero, add)
    closed = first.suppress(Suppress.until_window_closes()).to_stream()
    again = closed.group_by(lambda window, total: window.key[:5], key=Str(), value=Json())
    longer = TimeWindows.of(timedelta(minutes=2), grace=timedelta(minutes=1) + GRACE)
    again.windowed_by(longer).aggregate(zero, lambda key, part, total: total + part).to_stream().to("out")


def behind_a_foreign_key_join(builder: StreamsBuilder) -> None:
    orders = builder.table("orders")
    with_city = orders.join(builder.table("cities"), pair, foreign_key=lambda placed: placed["city"])
    grouped = with_city.group_by(lambda key, both: (str(both[1]["land"]), both[0]))
    less = lambda key, placed, total: total - placed["amount"]  # noqa: E731
    grouped.aggregate(zero, add, less).to_stream().to("out")


def windows_behind_a_foreign_key_join(builder: StreamsBuilder) -> None:
    cities = builder.stream("prices").select_key(lambda key, price: price["city"]).to_table()
    priced = builder.table("orders").join(cities, pair, foreign_key=lambda placed: placed["city"]).to_stream()
    # Of a row and its foreign row that both change, either may come last: which windows there are is all that is sure.
    priced.group_by_key().windowed_by(MINUTE).aggregate(zero, lambda key, both, seen: 1).to_stream().to("out")


def as_of_join(builder: StreamsBuilder) -> None:
    prices = builder.stream("prices").select_key(lambda key, price: price["city"])
    versioned = prices.to_table(store=Versioned("prices", retention=timedelta(hours=1)))
    builder.stream("orders").select_key(city).join(versioned, pair, grace=GRACE).to("out")


def counted_behind_two_repartitions(builder: StreamsBuilder) -> None:
    once = builder.stream("orders").select_key(order).repartition()
    once.group_by(city).count().to_stream().to("out")


LAST: list[Callable[[StreamsBuilder], None]] = [
    tumbling, hopping, sliding, session, behind_a_table_join, cogrouped, merged_with_its_own_copy,
    merged_with_its_own_copy_behind_a_join, merged_with_its_own_copy_behind_a_repartition, window_behind_a_window,
    behind_a_foreign_key_join, windows_behind_a_foreign_key_join, counted_behind_two_repartitions,
]  # fmt: skip
ALL: list[Callable[[StreamsBuilder], None]] = [suppressed, emit_on_close, joined, left_joined, as_of_join]


def built(draw: Callable[[StreamsBuilder], None]) -> Topology:
    builder = StreamsBuilder()
    draw(builder)
    return builder.build()


def backfill(seed: int, count: int) -> list[Sent]:
    """So many orders and what belongs to them, as they were sent: at most `DISORDER` milliseconds out of order."""
    rng = random.Random(seed)
    sent: list[Sent] = [("users", f"u{n}", {"home": f"city{n % 20}"}, START - 2) for n in range(1_000)]
    sent += [("cities", f"city{n}", {"land": f"land{n % 3}"}, START - 1) for n in range(20)]
    sent += [("prices", f"p{n}", {"city": f"city{n}", "price": 0}, START - 1) for n in range(20)]
    later: list[tuple[int, Sent]] = []
    for n in range(count):
        at = START + rng.randrange(END - START)
        amount = {"city": f"city{rng.randrange(20)}", "amount": rng.randrange(1, 100), "order": f"o{n}"}
        sent_at = at + rng.randrange(DISORDER)
        later.append((sent_at, ("orders", f"u{rng.randrange(1_000)}", amount, at)))
        if n % 2 == 0:
            paid = at + rng.randrange(5_000)
            later.append((paid + rng.randrange(DISORDER), ("payments", f"u{rng.randrange(1_000)}", amount, paid)))
        if n % 10 == 0:
            price = {"city": f"city{rng.randrange(20)}", "price": n}
            later.append((sent_at, ("prices", f"p{rng.randrange(100)}", price, at)))
    for n in range(100):  # so that in every shard all that came before is closed
        at = END + 60_000 + n * 1_000
        ending = {"city": f"city{n % 20}", "amount": 1, "order": f"end{n}"}
        later += [(at, (topic, f"u{n}", ending, at)) for topic in ("orders", "payments")]
    later.sort(key=lambda one: one[0])
    return sent + [record for _, record in later]


CONFIG = Config(join_emit_interval=timedelta(0), window_emit_interval=timedelta(0))
Result = tuple[bytes | None, bytes | None, int]


def by_driver(topology: Topology, sent: Iterable[Sent]) -> list[Result]:
    with TopologyTestDriver(topology, CONFIG, partitions=PARTITIONS) as driver:
        for topic, key, value, at in sent:
            driver.input(topic).send(key, value, at=at)
        assert driver.metrics()["late-records-total"] == 0
        out = driver.output("out", Bytes(), Bytes()).read_all()
        return [(record.key, record.value, record.timestamp) for record in out]


def by_line(topology: Topology, sent: Iterable[Sent], at_once: int = 700, drain: bool = True) -> list[Result]:
    """What one batch brings, its sources read in portions of so many records."""
    line = Line(topology, CONFIG, topics_of(topology), PARTITIONS)
    parts: dict[str, list[Any]] = defaultdict(list)
    for topic, key, value, at in sent:
        parts[topic].append((key.encode(), Json().encode(value), at, (), 0))
    sources = [
        made
        for topic, records in parts.items()
        for first in range(0, len(records), at_once)
        for made in line.send(topic, records[first : first + at_once])
    ]
    written = line.batch(sources, START, drain)
    for report in line.reports:
        assert not report.late
        assert not report.dropped
    assert not any(headers for _, (_, _, _, headers, _) in written)
    return [(key, value, at) for _, (key, value, at, _, _) in written]


def topics_of(topology: Topology) -> set[str]:
    return {topic for source in topology.sources() for topic in source.topics if topic not in topology.internal_topics}


def last(results: list[Result]) -> dict[bytes | None, Any]:
    found = {key: value for key, value, _ in results}
    return {key: value for key, value in found.items() if value is not None}


def before_end(results: list[Result]) -> list[Result]:
    return sorted((result for result in results if result[2] < END), key=repr)


def read_by(topology: Topology, sent: list[Sent]) -> list[Sent]:
    topics = topics_of(topology)
    return [record for record in sent if record[0] in topics]


@pytest.mark.parametrize("drain", [True, False], ids=["to_dataframes", "run"])
@pytest.mark.parametrize("draw", [*LAST, *ALL], ids=lambda draw: draw.__name__)
def test_a_backfill_ends_as_in_the_driver(draw: Callable[[StreamsBuilder], None], drain: bool) -> None:
    topology = built(draw)
    sent = read_by(topology, backfill(7, COUNT))
    expected, got = by_driver(topology, sent), by_line(topology, sent, drain=drain)
    assert expected
    if draw in LAST:
        assert last(got) == last(expected)
    else:
        assert before_end(got) == before_end(expected)
