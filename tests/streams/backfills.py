"""Topologies in which several partitions meet behind a repartition, and a backfill for them: everything is there before
the start, out of order by less than a grace that every window has, so that nothing may be late."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from headwater import (
    Bytes,
    JoinWindows,
    Json,
    KStream,
    KTable,
    Producer,
    SessionWindows,
    SlidingWindows,
    Str,
    StreamsBuilder,
    Suppress,
    TimeWindows,
    Topology,
    TopologyTestDriver,
)
from tests.streams.apps import Place

PARTITIONS = 4
SPAN_MS, DISORDER_MS = 200_000, 3_400
CITIES = 23

Sent = tuple[str, str, Any, int]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def grouped(builder: StreamsBuilder, topic: str = "orders") -> Any:
    return builder.stream(topic).group_by(lambda key, value: value["city"], name=f"{topic}-by-city")


def total(key: str, value: Any, so_far: int) -> int:
    return so_far + value["amount"]


def tumbling(builder: StreamsBuilder, grace: timedelta) -> KTable:
    windowed = grouped(builder).windowed_by(TimeWindows.of(seconds(60), grace=grace))
    return windowed.aggregate(lambda: 0, total)


def hopping(builder: StreamsBuilder, grace: timedelta) -> KTable:
    windowed = grouped(builder).windowed_by(TimeWindows.of(seconds(60), advance=seconds(20), grace=grace))
    return windowed.aggregate(lambda: 0, total)


def sliding(builder: StreamsBuilder, grace: timedelta) -> KTable:
    windowed = grouped(builder).windowed_by(SlidingWindows.of(seconds(20), grace=grace))
    return windowed.aggregate(lambda: 0, total)


def sessions(builder: StreamsBuilder, grace: timedelta) -> KTable:
    windowed = grouped(builder).windowed_by(SessionWindows.of(seconds(1), grace=grace))
    return windowed.aggregate(lambda: 0, total, merge=lambda key, one, other: one + other)


def suppressed(builder: StreamsBuilder, grace: timedelta) -> KTable:
    windowed = grouped(builder).windowed_by(TimeWindows.of(seconds(10), grace=grace))
    return windowed.aggregate(lambda: 0, total).suppress(Suppress.until_window_closes())


def on_close(builder: StreamsBuilder, grace: timedelta) -> KTable:
    windowed = grouped(builder).windowed_by(TimeWindows.of(seconds(10), grace=grace))
    return windowed.emit_strategy("on-close").aggregate(lambda: 0, total)


def summed(stream: KStream) -> KTable:
    return stream.group_by_key().aggregate(lambda: 0, lambda key, value, so_far: so_far + value)


def product(one: Any, other: Any) -> int:
    return one["amount"] * other["amount"]


def joined_streams(builder: StreamsBuilder, grace: timedelta) -> KTable:
    orders = builder.stream("orders").select_key(lambda key, value: value["city"])
    others = builder.stream("others").select_key(lambda key, value: value["city"])
    return summed(orders.join(others, product, JoinWindows.of(seconds(2), grace=grace)))


def joined_with_a_source(builder: StreamsBuilder, grace: timedelta) -> KTable:
    orders = builder.stream("orders").select_key(lambda key, value: value["seller"])
    return summed(orders.join(builder.stream("others"), product, JoinWindows.of(seconds(20), grace=grace)))


def left_joined(builder: StreamsBuilder, grace: timedelta) -> KTable:
    orders = builder.stream("orders").select_key(lambda key, value: value["seller"])
    others = builder.stream("others").select_key(lambda key, value: value["seller"])
    windows = JoinWindows.of(seconds(5), grace=grace)
    joined = orders.left_join(others, lambda one, other: 0 if other is None else 1, windows)
    return joined.group_by(lambda key, value: f"{key} {value}").count()


def table_then_window(builder: StreamsBuilder, grace: timedelta) -> KTable:
    users = builder.table("users", store="users")
    orders = builder.stream("orders").join(users, lambda order, user: {**order, "city": user["city"]})
    regrouped = orders.group_by(lambda key, value: value["city"])
    return regrouped.windowed_by(TimeWindows.of(seconds(60), grace=grace)).aggregate(lambda: 0, total)


def cogrouped(builder: StreamsBuilder, grace: timedelta) -> KTable:
    both = grouped(builder).cogroup(total).cogroup(grouped(builder, "others"), total)
    return both.windowed_by(TimeWindows.of(seconds(30), grace=grace)).aggregate(lambda: 0)


def merged_with_itself(builder: StreamsBuilder, grace: timedelta) -> KTable:
    orders = builder.stream("orders")
    copy = orders.select_key(lambda key, value: value["seller"]).repartition(name="copied")
    both = orders.merge(copy).group_by_key()
    return both.windowed_by(TimeWindows.of(seconds(30), grace=grace)).aggregate(lambda: 0, total)


def window_behind_window(builder: StreamsBuilder, grace: timedelta) -> KTable:
    counts = grouped(builder).windowed_by(TimeWindows.of(seconds(10), grace=grace)).count().to_stream()
    second = counts.group_by(lambda window, value: window.key[-1], key=Str(), value=Json())
    return second.windowed_by(TimeWindows.of(seconds(30), grace=grace)).count()


KINDS: dict[str, Callable[[StreamsBuilder, timedelta], KTable]] = {
    kind.__name__: kind
    for kind in (
        tumbling, hopping, sliding, sessions, suppressed, on_close, joined_streams, joined_with_a_source, left_joined,
        table_then_window, cogrouped, merged_with_itself, window_behind_window,
    )
}  # fmt: skip


def topology(kind: str, grace: timedelta = timedelta(seconds=10)) -> Topology:
    builder = StreamsBuilder()
    KINDS[kind](builder, grace).to_stream().to("out")
    return builder.build()


def records(count: int, seed: int = 5, disorder_ms: int = DISORDER_MS) -> list[Sent]:
    """Users first, then orders and others by event time, but for some disorder; the last ones close every window."""
    rng = random.Random(seed)
    users: list[Sent] = [("users", f"u{n}", {"city": f"c{n % CITIES}"}, 0) for n in range(200)]
    sent: list[tuple[int, Sent]] = []
    for number in range(count):
        at = 10_000 + number * SPAN_MS // count
        topic = ("orders", "others")[rng.random() < 0.3]
        value = {"city": f"c{rng.randrange(CITIES)}", "seller": f"u{rng.randrange(200)}", "amount": rng.randrange(100)}
        sent.append((at, (topic, f"u{rng.randrange(200)}", value, at - rng.randrange(disorder_ms + 1))))
    # After these nothing is open any more, in any partition.
    end = SPAN_MS + 500_000
    closing: list[Sent] = [
        (topic, f"u{n}", {"city": f"c{n % CITIES}", "seller": f"u{n}", "amount": 1}, end + step)
        for step in (0, 300_000)
        for topic in ("orders", "others")
        for n in range(200)
    ]
    return users + [record for _, record in sent] + closing


def fill(broker: str, sent: Sequence[Sent], prefix: str = "") -> None:
    """Write the records, each to the partition of its key; topics may have a prefix."""
    with Producer(broker) as producer:
        for topic, key, value, at in sent:
            producer.send(prefix + topic, key=key.encode(), value=json.dumps(value).encode(), timestamp=at)


def last(results: Iterable[tuple[Any, Any]]) -> dict[bytes, bytes]:
    """The last value of each key, but for those that were deleted."""
    return {key: value for key, value in dict(results).items() if value is not None}


def expected(kind: str, sent: Sequence[Sent], **settings: Any) -> dict[bytes, bytes]:
    """The last result of each key that the test driver gives, fed in the order of arrival."""
    built = topology(kind, **settings)
    read = {topic for source in built.sources() for topic in source.topics}
    with TopologyTestDriver(built, partitions=PARTITIONS) as driver:
        for topic, key, value, at in sent:
            if topic in read:
                driver.input(topic).send(key, value, at=at)
        assert driver.metrics()["dropped-records-total"] == 0
        found = driver.output("out", Bytes(), Bytes()).read_all()
        return last((record.key, record.value) for record in found)


# Closed windows are looked for with every record, as the test driver does, not once in a second.
AT_ONCE: dict[str, Any] = {"join_emit_interval": timedelta(0), "window_emit_interval": timedelta(0)}


def backfilled(
    kind: str, sent: Sequence[Sent], folder: Path, grace: timedelta = timedelta(seconds=10), **settings: Any
) -> tuple[dict[bytes, bytes], int]:
    """The last result of each key that one worker on the embedded log gives, and how many records it has dropped."""
    place = Place(folder, PARTITIONS, ("orders", "others", "users"))
    fill(place.broker, sent)
    with place.app(topology(kind, grace), **AT_ONCE, **settings) as app:
        app.wait_idle(300)
        dropped = app.metrics()["dropped-records-total"]
    return last(place.out()), dropped
