"""What the crash tests run: a topology with joins, aggregations and two repartitions, its input, and the comparison of
what came of it. It knows neither processes nor kills."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

from headwater import Config, Json, StreamsBuilder, TimeWindows, Topology
from headwater.dsl.partitioner import partition_for
from headwater.state.log import Files, Log, Partition
from headwater.state.log.files import REAL_FILES

PARTITIONS = 3
SOURCES = ("orders", "users", "shops")
OUTPUTS = ("enriched", "counts", "digests", "labelled", "countries")
STORES = ("users", "shops", "counts", "digests", "countries")
# Orders of a country come from several partitions, so that their order, and with it a count's timestamp, is chance.
ORDER_IS_CHANCE = "countries"

New = tuple[bytes, bytes, int, tuple[()]]


def digest(shop: str, order: dict[str, Any], so_far: list[int]) -> list[int]:
    """Return a number that says which orders there were and in which order."""
    return [so_far[0] + 1, (so_far[1] * 31 + order["number"]) % 1_000_003]


def topology() -> Topology:
    """Orders joined with users, then by shop (counted, digested per window, joined with shops) and by country."""
    builder = StreamsBuilder(value=Json())
    users = builder.table("users", store="users")
    shops = builder.table("shops", store="shops")
    orders = builder.stream("orders").join(users, lambda order, user: {**order, "country": user["country"]})
    orders.to("enriched")
    by_shop = orders.select_key(lambda user, order: order["shop"]).repartition(name="by-shop")
    by_shop.group_by_key().count(store="counts").to_stream().to("counts", value=Json())
    (
        by_shop.group_by_key()
        # Nothing is ever late: how the orders of several shops are mixed is chance, and so is stream time.
        .windowed_by(TimeWindows.of(timedelta(seconds=10), grace=timedelta(days=1)))
        .aggregate(lambda: [0, 0], digest, store="digests", value=Json())
        .to_stream()
        .to("digests")
    )
    by_shop.join(shops, lambda order, shop: {**order, "label": shop["label"]}).to("labelled")
    (
        orders.group_by(lambda user, order: order["country"], name="by-country")
        .count(store="countries")
        .to_stream()
        .to("countries", value=Json())
    )
    return builder.build()


# Input


def row(key: str, value: dict[str, Any], at: int) -> New:
    return key.encode(), json.dumps(value).encode(), at, ()


def partition_of(record: New) -> int:
    return partition_for(record[0], PARTITIONS)


@dataclass(frozen=True)
class Input:
    """All that is produced, by topic and partition."""

    records: dict[tuple[str, int], list[New]]

    @classmethod
    def of(cls, orders: int, *, seed: int = 1, moving_users: bool) -> "Input":
        """Make orders of 20 users; with `moving_users`, users move to other countries between their orders.

        Each shop takes the orders of one partition only: so all about a shop is decided by the input.
        """
        rng = Random(seed)
        users = [f"user-{number}" for number in range(20)]
        countries = ["at", "ch", "de", "fr", "it"]
        made: dict[tuple[str, int], list[New]] = defaultdict(list)

        def add(topic: str, record: New) -> None:
            made[topic, partition_of(record)].append(record)

        for user in users:
            add("users", row(user, {"country": rng.choice(countries)}, 0))
        for home in range(PARTITIONS):
            for number in range(4):
                add("shops", row(f"shop-{home}-{number}", {"label": f"{home}/{number}"}, 0))
        for number in range(orders):
            at = 1_000 + 20 * number
            if moving_users and number % 7 == 0:
                add("users", row(rng.choice(users), {"country": rng.choice(countries)}, at))
            user = rng.choice(users)
            shop = f"shop-{partition_for(user.encode(), PARTITIONS)}-{rng.randrange(4)}"
            # Out of order now and then, and never at the time of another record.
            late = 1_000 * rng.randrange(5) if rng.random() < 0.1 else 0
            add("orders", row(user, {"number": number, "shop": shop}, max(1, at + 1 - late)))
        return cls(dict(made))

    def make_topics(self, log: Log) -> None:
        for topic in SOURCES:
            log.create_topic(topic, PARTITIONS)

    def produce(self, log: Log, topics: Iterable[str] = SOURCES, *, share: float = 1.0, sync: bool = True) -> None:
        """Append what is not there yet, up to a share of each partition."""
        for (topic, number), records in self.records.items():
            if topic in topics:
                with log.partition(topic, number) as partition:
                    if more := records[partition.end : round(share * len(records))]:
                        partition.append(more, sync=sync)


# What came of it


@dataclass(frozen=True)
class Outcome:
    """All outputs and the rows of all stores."""

    by_key: dict[tuple[str, bytes], list[Any]]
    by_partition: dict[tuple[str, int], Counter[Any]]
    stores: dict[str, list[Any]]


def read_all(partition: Partition) -> Iterator[Any]:
    offset = partition.start
    while records := partition.read(offset):
        yield from records
        offset = records[-1][4] + 1


def outcome(log: Log, app: Any) -> Outcome:
    """Read what an application that runs alone and is idle has brought about."""
    by_key: dict[tuple[str, bytes], list[Any]] = defaultdict(list)
    by_partition: dict[tuple[str, int], Counter[Any]] = {}
    for topic in OUTPUTS:
        for number in range(PARTITIONS):
            counter = by_partition[topic, number] = Counter()
            with log.partition(topic, number) as partition:
                assert list(partition.verify()) == []
                for key, value, timestamp, _, _ in read_all(partition):
                    record = value if topic == ORDER_IS_CHANCE else (value, timestamp)
                    by_key[topic, key].append(record)
                    counter[key, record] += 1
    stores = {
        name: [
            (key, value if name == ORDER_IS_CHANCE else (value, timestamp))
            for key, (value, timestamp) in app.store(name).all(timestamps=True)
        ]
        for name in STORES
    }
    return Outcome(dict(by_key), by_partition, stores)


def differences(expected: Outcome, got: Outcome) -> list[str]:
    """Say where two outcomes differ, one line for each key, partition and store."""
    found = []
    for place in sorted({*expected.by_partition, *got.by_partition}):
        wanted, there = expected.by_partition.get(place, Counter()), got.by_partition.get(place, Counter())
        if wanted != there:
            found.append(f"{place}: {(wanted - there).total()} records lost, {(there - wanted).total()} too many")
    for topic, key in sorted({*expected.by_key, *got.by_key}):
        records, others = expected.by_key.get((topic, key), []), got.by_key.get((topic, key), [])
        if records != others:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(records, others, strict=False)))
            found.append(f"{topic} {key!r}: {len(records)} records became {len(others)}, others from number {same} on")
    for name, rows in expected.stores.items():
        if rows != (there_rows := got.stores[name]):
            lacks, extra = [r for r in rows if r not in there_rows], [r for r in there_rows if r not in rows]
            found.append(f"store {name}: lacks {lacks[:3]}, has {extra[:3]}")
    return found


def counted(line: str, what: str) -> int:
    """Return how many records a difference says are lost, or too many."""
    found = re.search(rf"(\d+) (?:records )?{what}", line)
    return int(found[1]) if found else 0


def config(folder: Path, **changes: Any) -> Config:
    """The settings of the application in a folder: its log and its state are apart, as only the log loses power."""
    changes = {"commit_interval": timedelta(0)} | changes
    return Config("shop", state_dir=folder / "state", **changes)


def open_log(folder: Path, files: Files = REAL_FILES) -> Log:
    return Log.open(folder / "log", files)
