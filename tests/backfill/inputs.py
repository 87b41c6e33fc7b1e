"""What a backfill reads: topics of four partitions that are full before the start, the same at each call."""

import random
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers

PARTITIONS = 4
KEYS, CITIES, REGIONS = 1_000, 50, 7
# Of a whole minute, so that windows are cut alike in every run.
BEGIN = 1_699_999_980_000
SPAN_MS = 200_000
END = BEGIN + SPAN_MS
# How far a record may be behind the highest timestamp before it. No grace in the topologies is below three times that.
DISORDER_MS = 3_400


class Sent(NamedTuple):
    """A record of an input topic, in the form in which all back ends are given it."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    timestamp: int
    headers: Headers = ()


class Event(NamedTuple):
    """A record of an input topic as the topologies see it: its value is `number city amount peer`."""

    topic: str
    number: int
    key: str
    city: str
    amount: int
    peer: str
    timestamp: int
    headers: Headers = ()

    @property
    def value(self) -> str:
        return f"{self.number} {self.city} {self.amount} {self.peer}"

    def sent(self) -> Sent:
        key = self.key.encode()
        return Sent(self.topic, partition_for(key, PARTITIONS), key, self.value.encode(), self.timestamp, self.headers)


def number_of(value: str) -> int:
    return int(value.split()[0])


def city_of(value: str) -> str:
    return value.split()[1]


def amount_of(value: str) -> int:
    return int(value.split()[2])


def peer_of(value: str) -> str:
    return value.split()[3]


def region_of(city: str) -> str:
    """The region of a city."""
    return f"r{int(city[1:]) % REGIONS}"


@dataclass(frozen=True)
class Inputs:
    """`size` records of each stream over 200 s of event time, out of order by 3.4 s at most, and the tables.

    Timestamps of streams are even, those of tables odd: no order between two topics depends on a tie. Rows of `users`,
    `profiles` and `places` are older than the streams and never change; those of `members` change as the streams go on,
    as do `prices`, whose versions are in order. With `step_ms`, the streams' timestamps are multiples of it, so that
    many of them are equal.
    """

    size: int
    seed: int = 0
    step_ms: int = 2

    def _events(self, topic: str, size: int, odd: int = 0) -> list[Event]:
        rng = random.Random(f"{topic} {self.seed}")
        made = []
        for number in range(size):
            behind = rng.randrange(DISORDER_MS) if rng.random() < 0.5 else 0
            at = max(BEGIN, BEGIN + number * SPAN_MS // size - behind) // self.step_ms * self.step_ms + odd
            headers = (("number", str(number).encode()),) if rng.random() < 0.3 else ()
            key, peer = (f"k{rng.randrange(KEYS)}" for _ in range(2))
            city = f"c{rng.randrange(CITIES)}"
            made.append(Event(topic, number, key, city, rng.randrange(1, 100), peer, at, headers))
        return made

    def _rows(self, topic: str, keys: list[str]) -> list[Event]:
        """One row for each key, older than all streams."""
        rng = random.Random(f"{topic} {self.seed}")
        return [
            Event(topic, at, key, f"c{rng.randrange(CITIES)}", rng.randrange(1, 100), key, BEGIN - 9_999 + 2 * at)
            for at, key in enumerate(keys)
        ]

    @cached_property
    def orders(self) -> list[Event]:
        return self._events("orders", self.size)

    @cached_property
    def clicks(self) -> list[Event]:
        return self._events("clicks", self.size)

    @cached_property
    def members(self) -> list[Event]:
        return self._events("members", self.size, odd=1)

    @cached_property
    def users(self) -> list[Event]:
        return self._rows("users", [f"k{at}" for at in range(KEYS)])

    @cached_property
    def profiles(self) -> list[Event]:
        return self._rows("profiles", [f"k{at}" for at in range(KEYS)])

    @cached_property
    def places(self) -> list[Event]:
        """A row for each city."""
        return self._rows("places", [f"c{at}" for at in range(CITIES)])

    @cached_property
    def prices(self) -> list[Event]:
        """A first price of each city, and then one every 100 ms, which is there long before an order of that time."""
        rng = random.Random(f"prices {self.seed}")
        first = [Event("prices", at, f"c{at}", "-", at, "-", BEGIN - 9_999 + at * 2) for at in range(CITIES)]
        later = [
            Event("prices", CITIES + at, f"c{rng.randrange(CITIES)}", "-", at, "-", BEGIN + at * 100 + 1)
            for at in range(SPAN_MS // 100)
        ]
        return first + later

    def of(self, topics: set[str]) -> list[Sent]:
        """The records of some topics in the order in which they have arrived: tables' rows before what needs them."""
        arrived: list[tuple[int, int, Event]] = []
        for topic in ("users", "profiles", "places", "prices", "orders", "clicks", "members"):
            if topic not in topics:
                continue
            events: list[Event] = getattr(self, topic)
            for event in events:
                if topic in ("orders", "clicks", "members"):
                    arrived.append((BEGIN + event.number * SPAN_MS // self.size, len(arrived), event))
                else:
                    # Before any record of its time.
                    arrived.append((event.timestamp - 2 * DISORDER_MS, len(arrived), event))
        return [event.sent() for _, _, event in sorted(arrived, key=lambda one: one[:2])]
