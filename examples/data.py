"""Realistic input for each example: a function of the example's name that yields (topic, key, value, timestamp).

Records come in the order of their arrival, some of them late on purpose. The same arguments give the same records on
every machine, so that demos, tests and benchmarks share them; `TopologyTestDriver.send_all` takes them as they are.
"""

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias

Arrival: TypeAlias = tuple[str, str | None, Any, int]

START = 1_772_438_400_000  # 2 March 2026, 08:00 UTC
SECOND = 1000
MINUTE = 60 * SECOND

TEXT = """\
It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.
However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so
well fixed in the minds of the surrounding families, that he is considered as the rightful property of some one or other
of their daughters.""".replace("\n", " ").split()

COUNTRIES = ["Denmark", "Italy", "Kenya", "Norway", "Peru"]
ITEMS = ["lamp", "chair", "desk", "shelf", "rug", "mirror"]
CITIES = ["Bergen", "Cusco", "Nairobi", "Odense", "Parma"]
SERVICES = ["cart", "checkout", "login", "search", "shipping"]


def word_count(count: int = 100, seed: int = 0, start: int = START) -> Iterator[Arrival]:
    """`count` lines of three to eleven words, without a key."""
    rng = random.Random(seed)
    for i in range(count):
        first = rng.randrange(len(TEXT) - 11)
        yield "lines", None, " ".join(TEXT[first : first + rng.randint(3, 11)]), start + i * SECOND


def revenue(count: int = 200, seed: int = 0, start: int = START, users: int = 20) -> Iterator[Arrival]:
    """The users, then `count` orders: one in ten is late, one in fifty too late; now and then a user moves."""
    rng = random.Random(seed)
    for i in range(users):
        yield "users", f"user-{i}", {"country": rng.choice(COUNTRIES)}, start
    at = start
    for i in range(count):
        at += rng.randint(100, 3 * SECOND)
        user = f"user-{rng.randrange(users)}"
        if rng.random() < 0.02:
            yield "users", user, {"country": rng.choice(COUNTRIES)}, at
        late = rng.choices([0, rng.randint(SECOND, 9 * SECOND), 2 * MINUTE], weights=[88, 10, 2])[0]
        amount = round(rng.lognormvariate(3.3, 0.9), 2)
        yield "orders", user, {"order": f"order-{i}", "amount": amount}, max(start, at - late)


def trucks(count: int = 600, seed: int = 0, start: int = START, trucks: int = 10) -> Iterator[Arrival]:
    """`count` positions, one per truck and minute: truck-1 passes a dead spot, truck-2 falls silent, truck-3 parks.

    From minute 10 to 29 truck-1 is out of reach and reports those positions at minute 30, truck-2 says nothing, and
    truck-3 stands still, having said so. After that the three drive on.
    """
    rng = random.Random(seed)
    km = {truck: rng.randint(10_000, 90_000) for truck in range(trucks)}

    def reports() -> Iterator[Arrival]:
        unsent = []
        for minute in itertools.count():
            away = 10 <= minute < 30
            for truck in range(trucks):
                if away and (truck == 2 or (truck == 3 and minute > 10)):
                    continue
                km[truck] += rng.choice([0, 1, 1, 2])
                position = {
                    "lat": round(45 + truck / 10 + km[truck] % 1000 / 1000, 3),
                    "lon": round(9 + truck / 10 + km[truck] % 1000 / 2000, 3),
                    "km": km[truck],
                    "parked": away and truck == 3,
                }
                at = start + minute * MINUTE + truck * SECOND + rng.randrange(SECOND)
                report = "positions", f"truck-{truck}", position, at
                if away and truck == 1:
                    unsent.append(report)
                    continue
                if truck == 1:
                    yield from unsent
                    unsent.clear()
                yield report

    yield from itertools.islice(reports(), count)


def payments(count: int = 500, seed: int = 0, start: int = START, cards: int = 40) -> Iterator[Arrival]:
    """`count` payments: most of them at home and small, one in fifty the start of a thief's spree, some late."""
    rng = random.Random(seed)
    home = [rng.choice(COUNTRIES) for _ in range(cards)]
    spree: list[int] = []
    at = start
    for i in range(count):
        at += rng.randint(5 * SECOND, 40 * SECOND)
        stolen = bool(spree)
        card = spree.pop() if stolen else rng.randrange(cards)
        if not stolen and rng.random() < 0.02:
            spree = [card] * 6
        cents = rng.randint(30_000, 90_000) if stolen else round(rng.lognormvariate(7.5, 0.8))
        country = rng.choice(COUNTRIES) if stolen else home[card]
        late = rng.choices([0, rng.randint(MINUTE, 4 * MINUTE), 20 * MINUTE], weights=[94, 5, 1])[0]
        payment = {"payment": f"payment-{i}", "cents": cents, "country": country}
        yield "payments", f"card-{card}", payment, max(start, at - late)


def database_changes(count: int = 300, seed: int = 0, start: int = START) -> Iterator[Arrival]:
    """`count` inserts, updates and deletes of customers and orders; some orders have an unknown customer."""
    rng = random.Random(seed)
    tables: dict[str, dict[str, dict[str, Any]]] = {"customers": {}, "orders": {}}
    keys: dict[str, list[str]] = {"customers": [], "orders": []}
    for i in range(count):
        table = rng.choices(["customers", "orders"], weights=[1, 3])[0]
        operation = rng.choices(["insert", "update", "delete"], weights=[5, 3, 1])[0] if keys[table] else "insert"
        if operation == "insert":
            keys[table].append(f"{table[0]}{i}")
        place = len(keys[table]) - 1 if operation == "insert" else rng.randrange(len(keys[table]))
        key = keys[table][place]
        before = tables[table].pop(key, None)
        after = None
        if operation == "delete":
            keys[table][place] = keys[table][-1]
            keys[table].pop()
        elif table == "customers":
            after = {"name": before["name"] if before else f"Customer {i}", "city": rng.choice(CITIES)}
        else:
            known = keys["customers"] and rng.random() < 0.9
            customer = rng.choice(keys["customers"]) if known else "c-unknown"
            after = {"customer": customer, "item": rng.choice(ITEMS), "cents": rng.randint(500, 50_000)}
        if after is not None:
            tables[table][key] = after
        change = {"op": operation, "before": before, "after": after}
        yield f"shop.{table}", key, change, start + i * SECOND


def error_rates(count: int = 2000, seed: int = 0, start: int = START, hosts: int = 6) -> Iterator[Arrival]:
    """`count` log lines, ten a second, shipped within five seconds, or, a few, minutes later.

    In the second minute checkout is in trouble. The time that counts stands in the line; the record's own is the one of
    its arrival. One error in three is followed by a line of a stack trace, one of the `count`, too.
    """
    rng = random.Random(seed)

    def lines() -> Iterator[Arrival]:
        for i in itertools.count():
            arrived = start + 5 * SECOND + i * 100
            delay = rng.choices([rng.randrange(5 * SECOND), 3 * MINUTE], weights=[499, 1])[0]
            written = max(start, arrived - delay)
            host, service = f"host-{rng.randrange(hosts)}", rng.choice(SERVICES)
            trouble = service == "checkout" and MINUTE <= written - start < 2 * MINUTE
            level = rng.choices(["INFO", "WARN", "ERROR"], weights=[50, 20, 30] if trouble else [93, 5, 2])[0]
            time = datetime.fromtimestamp(written / 1000, UTC).isoformat(timespec="milliseconds")
            message = "no answer from the database" if level == "ERROR" else "request served"
            yield "logs", host, f"{time.removesuffix('+00:00')}Z {service} {level} {message}", arrived
            if level == "ERROR" and rng.random() < 1 / 3:
                yield "logs", host, "    at Pool.connect(Pool.java:112)", arrived

    yield from itertools.islice(lines(), count)
