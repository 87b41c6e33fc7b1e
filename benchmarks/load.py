"""A keyed count under load, on the embedded log: `make bench-load`.

A million keys are counted once each, so that the store is filled; then come ten million records with random keys. They
are all in the log before: what is measured is the worker alone, over RocksDB and exactly once, in one process of its
own. Commits come when the buffer of changed rows reaches its bound, or with the interval, whichever is first. Printed
are rate and memory over time, and the median rate of the last three tenths beside that of the first three.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from headwater import Config, Json, StreamsBuilder, Topology
from headwater.state.log import Log
from headwater.streams.run import open_app

BATCH = 10_000
TOPIC = "in"
MEGABYTE = 1 << 20


def count() -> Topology:
    """Records per key."""
    builder = StreamsBuilder(value=Json())
    builder.stream(TOPIC).group_by_key().count(store="counts").to_stream().to("out", value=Json())
    return builder.build()


def produce(directory: str, keys: int, records: int) -> None:
    """Append a record for each key, then records with random keys."""
    rng = random.Random(7)
    with Log.open(directory) as log:
        for topic in (TOPIC, "out"):
            # The records' times are long ago: retention would delete them as soon as they are there.
            log.create_topic(topic, retention_ms=None)
        with log.partition(TOPIC, 0) as partition:
            for first in range(0, keys, BATCH):
                numbers = range(first, min(first + BATCH, keys))
                partition.append([(b"user-%d" % n, b'{"n":%d}' % n, n, ()) for n in numbers])
            for first in range(keys, keys + records, BATCH):
                numbers = range(first, min(first + BATCH, keys + records))
                partition.append([(b"user-%d" % rng.randrange(keys), b'{"n":%d}' % n, n, ()) for n in numbers])
            partition.sync()


def peak_bytes() -> int:
    """The most memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_bytes() -> int | None:
    """The memory that this process has now, where the system says it."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * resource.getpagesize() if status.exists() else None


def show(samples: list[tuple[float, int]], total: int) -> None:
    (before, was), (now, reached) = samples[0], samples[-1]
    memory = resident_bytes()
    print(
        f"{reached / 1e6:8.2f} M of {total / 1e6:.1f} M  {(reached - was) / (now - before) / 1e3:7.0f} k/s"
        + (f"  {memory / MEGABYTE:6.0f} MB" if memory is not None else ""),
        flush=True,
    )


def median_rate(samples: list[tuple[float, int]], lowest: int, highest: int) -> float:
    """The median of the records per second in twelve equal parts between two numbers of records."""
    marks = [lowest + (highest - lowest) * part // 12 for part in range(13)]
    times = [passed(samples, mark) for mark in marks]
    return statistics.median((highest - lowest) / 12 / (after - before) for before, after in pairwise(times))


def passed(samples: list[tuple[float, int]], mark: int) -> float:
    """When a number of records was reached, between two samples in proportion."""
    for (before, was), (now, reached) in pairwise(samples):
        if was <= mark <= reached and was < reached:
            return before + (now - before) * (mark - was) / (reached - was)
    raise AssertionError(f"{mark} records were never processed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--commit-interval", type=float, default=30.0, help="seconds; long, so that the buffer decides")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two lines")
    parser.add_argument("--directory", help="where the log and the state are made; a temporary one by default")
    chosen = parser.parse_args()

    directory = tempfile.mkdtemp(prefix="headwater-load-", dir=chosen.directory)
    try:
        measure(directory, chosen.keys, chosen.records, timedelta(seconds=chosen.commit_interval), chosen.every)
    finally:
        shutil.rmtree(directory)


def measure(directory: str, keys: int, records: int, interval: timedelta, every: float) -> None:
    began = time.monotonic()
    # In another process: its memory is not the worker's.
    producer = multiprocessing.get_context("spawn").Process(target=produce, args=(directory, keys, records))
    producer.start()
    producer.join()
    if producer.exitcode != 0:
        sys.exit("the records could not be produced")
    print(f"{(keys + records) / 1e6:.1f} M records produced in {time.monotonic() - began:.0f} s", flush=True)

    total = keys + records
    config = Config("load", commit_interval=interval)
    with open_app(count(), config, f"log://{directory}") as app:
        began = time.monotonic()
        samples, shown = [(began, 0)], 0
        while samples[-1][1] < total:
            time.sleep(0.2)
            reached = sum(task["records-total"] for task in app.metrics()["tasks"].values())
            samples.append((time.monotonic(), reached))
            if samples[-1][0] - samples[shown][0] >= every:
                show(samples[shown:], total)
                shown = len(samples) - 1
        app.wait_idle()
        seconds = time.monotonic() - began
        counted = sum(app.store("counts").get(f"user-{number}") for number in range(0, keys, keys // 10))
    print(f"{total / seconds / 1e3:.0f} k records/s over all, {seconds:.0f} s; ten of the keys: {counted} records")

    part = 3 * records // 10
    first = median_rate(samples, keys, keys + part)
    last = median_rate(samples, total - part, total)
    print(f"median rate of the first {part / 1e6:.1f} M: {first / 1e3:.0f} k/s, of the last: {last / 1e3:.0f} k/s")
    print(f"ratio {last / first:.2f} (aim: at least 0.7)")
    print(f"most memory: {peak_bytes() / MEGABYTE:.0f} MB")


if __name__ == "__main__":
    main()
