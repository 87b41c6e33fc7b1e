"""Records per second through the task, beside a hand-written loop that does the same work: `make bench-core`.

JSON bytes in and JSON bytes out, in micro-batches, with a commit after every third: about as many records as pass in
the default commit interval. The loop uses orjson and a dict, keeps no state on disk and handles no error; the ratios
are what counts, since both run in the same process one after the other.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from headwater import Config, Json, StreamsBuilder, TimeWindows, Topology
from headwater.state.backend import Backend
from headwater.state.memory import MemoryBackend
from headwater.state.rocks import RocksBackend
from headwater.streams.task import Task, TaskSpec

Raw = tuple[bytes | None, bytes | None, int, tuple[()], int]
BATCH = 10_000
COMMIT = 3 * BATCH


def records(count: int, keys: int) -> list[Raw]:
    """Orders of `keys` customers, in time order, a thousand a second."""
    rng = random.Random(7)
    return [
        (
            f"user-{rng.randrange(keys)}".encode(),
            orjson.dumps({"amount": rng.randrange(100), "item": f"item-{n % 50}", "paid": bool(n % 3)}),
            n,
            (),
            n,
        )
        for n in range(count)
    ]


def stateless() -> Topology:
    """filter, map_values, filter."""
    builder = StreamsBuilder(value=Json())
    (
        builder.stream("in")
        .filter(lambda key, order: order["amount"] > 10)
        .map_values(lambda order: {"item": order["item"], "total": order["amount"] * 2})
        .filter(lambda key, order: order["total"] < 180)
        .to("out")
    )
    return builder.build()


def stateless_loop(batch: list[Raw], state: dict[Any, Any], out: list[Any]) -> None:
    """The same by hand."""
    for key, value, timestamp, headers, _ in batch:
        order = orjson.loads(value)  # type: ignore[arg-type]
        if order["amount"] > 10:
            order = {"item": order["item"], "total": order["amount"] * 2}
            if order["total"] < 180:
                out.append(("out", None, key, orjson.dumps(order), timestamp, headers))


def count() -> Topology:
    """Orders per customer."""
    builder = StreamsBuilder(value=Json())
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=Json())
    return builder.build()


def count_loop(batch: list[Raw], state: dict[Any, Any], out: list[Any]) -> None:
    """The same by hand."""
    for key, value, timestamp, headers, _ in batch:
        name = key.decode()  # type: ignore[union-attr]
        orjson.loads(value)  # type: ignore[arg-type]
        state[name] = total = state.get(name, 0) + 1
        out.append(("out", None, name.encode(), orjson.dumps(total), timestamp, headers))


def tumbling() -> Topology:
    """The sum per customer and minute."""
    builder = StreamsBuilder(value=Json())
    (
        builder.stream("in")
        .group_by_key()
        .windowed_by(TimeWindows.of(timedelta(minutes=1)))
        .aggregate(lambda: 0, lambda key, order, total: total + order["amount"], store="sums", value=Json())
        .to_stream()
        .to("out")
    )
    return builder.build()


def tumbling_loop(batch: list[Raw], state: dict[Any, Any], out: list[Any]) -> None:
    """The same by hand; old windows are never dropped."""
    for key, value, timestamp, headers, _ in batch:
        name, order = key.decode(), orjson.loads(value)  # type: ignore[arg-type, union-attr]
        start = timestamp - timestamp % 60_000
        place = name, start
        state[place] = total = state.get(place, 0) + order["amount"]
        row = name.encode() + start.to_bytes(8, "big")
        out.append(("out", None, row, orjson.dumps(total), timestamp, headers))


def join() -> Topology:
    """Orders enriched with a table of customers."""
    builder = StreamsBuilder(value=Json())
    users = builder.table("users", store="users")
    builder.stream("in").join(users, lambda order, user: {**order, "city": user["city"]}).to("out")
    return builder.build()


def join_loop(batch: list[Raw], state: dict[Any, Any], out: list[Any]) -> None:
    """The same by hand; the customers stay decoded."""
    for key, value, timestamp, headers, _ in batch:
        user = state.get(key.decode())  # type: ignore[union-attr]
        if user is not None:
            order = orjson.loads(value)  # type: ignore[arg-type]
            out.append(("out", None, key, orjson.dumps({**order, "city": user["city"]}), timestamp, headers))


def users(keys: int) -> dict[str, dict[str, str]]:
    """A table of customers."""
    return {f"user-{n}": {"city": f"city-{n % 100}", "name": f"name-{n}"} for n in range(keys)}


CASES: dict[str, tuple[Callable[[], Topology], Callable[[list[Raw], dict[Any, Any], list[Any]], None]]] = {
    "filter, map_values, filter": (stateless, stateless_loop),
    "keyed count": (count, count_loop),
    "tumbling sum": (tumbling, tumbling_loop),
    "stream-table join": (join, join_loop),
}


def run_loop(name: str, batches: list[list[Raw]], keys: int) -> tuple[float, int]:
    """Seconds and outputs of the hand-written loop."""
    loop = CASES[name][1]
    state: dict[Any, Any] = dict(users(keys)) if loop is join_loop else {}
    written = 0
    begin = time.perf_counter()
    for batch in batches:
        out: list[Any] = []
        loop(batch, state, out)
        written += len(out)
    return time.perf_counter() - begin, written


def run_task(name: str, batches: list[list[Raw]], keys: int, make: Callable[[list[str]], Backend]) -> tuple[float, int]:
    """Seconds and outputs of the task, with a commit per batch written to its back end."""
    topology = CASES[name][0]()
    spec = TaskSpec(topology, Config("bench"), tuple(topology.nodes), "0_0", 0)
    backend = make(spec.backend_stores())
    task = Task(spec, backend)
    if task.reads("users"):
        rows = users(keys).items()
        table = [(key.encode(), orjson.dumps(user), 0, (), n) for n, (key, user) in enumerate(rows)]
        task.feed("users", 0, table)
        while task.process(BATCH, 0):
            backend.write(task.commit().batch())
    written = 0
    begin = time.perf_counter()
    for number, batch in enumerate(batches, 1):
        task.feed("in", 0, batch)
        while task.process(BATCH, 0):
            pass
        if number % (COMMIT // BATCH) == 0 or number == len(batches):
            changes = task.commit()
            backend.write(changes.batch())
            written += len(changes.outputs)
    seconds = time.perf_counter() - begin
    task.close()
    backend.close()
    return seconds, written


def measure(count: int, keys: int, repeats: int) -> list[dict[str, Any]]:
    """One row per case: the best of some rounds, in which the three take turns."""
    everything = records(count, keys)
    batches = [everything[start : start + BATCH] for start in range(0, count, BATCH)]
    rows = []
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    for name in CASES:
        best: dict[str, float] = {}
        outputs = set()
        for number in range(repeats):
            folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
            runs = {
                "loop": lambda name=name: run_loop(name, batches, keys),
                "memory": lambda name=name: run_task(name, batches, keys, MemoryBackend),
                "rocks": lambda name=name, folder=folder, n=number: run_task(
                    name, batches, keys, lambda stores: RocksBackend(folder / str(n), stores)
                ),
            }
            for way, run in runs.items():
                gc.collect()
                seconds, written = run()
                outputs.add(written)
                best[way] = min(best.get(way, seconds), seconds)
            shutil.rmtree(folder)
        assert len(outputs) == 1, f"{name}: the ways disagree on the number of outputs: {outputs}"
        rows.append({"case": name, **{way: count / seconds for way, seconds in best.items()}})
    return rows


def main() -> None:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.records, options.keys, options.repeats)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.records:,} records, {options.keys:,} keys, commits of {COMMIT:,}; thousand records per second\n")
    print(f"{'':<30}{'loop':>8}{'memory':>9}{'ratio':>7}{'rocks':>9}{'ratio':>7}")
    for row in rows:
        loop, memory, rocks = row["loop"], row["memory"], row["rocks"]
        print(
            f"{row['case']:<30}{loop / 1000:>8,.0f}{memory / 1000:>9,.0f}{memory / loop:>6.2f}x"
            f"{rocks / 1000:>9,.0f}{rocks / loop:>6.2f}x"
        )


if __name__ == "__main__":
    main()
