"""Records per second on Spark, each job beside the same by hand in PySpark: `make bench-spark`.

Topics of a real Kafka broker on this machine are read to their end in batches of one size, through Spark's connector,
into a sink that drops everything. Time is what Spark says its batches took, without starting the query. A first round
warms up and checks that both ways give the same; then they take turns, and the best of each counts: the ratios mean
something, the rates are this machine's. Shuffle partitions, state store and sizes of Arrow batches are the same for
both. See spark_jobs.py for the jobs.

The second table is how a keyed count per record grows with its state: filling it, then records of all keys evenly, then
of a thousand of them alone, and batches in which there is nothing but the clock.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.spark_jobs import JOBS, Job, count
from headwater import Config
from headwater.streams.spark.dataframes import to_dataframes
from headwater.streams.spark.session import open_session
from tests.kafka.broker import Broker
from tests.kafka.jars import jars

PARTITIONS = 4
FEW = 1_000
# Odd and prime to the numbers of keys: its multiples reach them all, in no order, and all partitions in turn.
STRIDE = 7_919
BEGIN = 1_700_000_000_000
QUIET_BATCHES = 7

Sent = tuple[int, bytes, bytes, int]


def orders(records: int, keys: int) -> Iterator[Sent]:
    """Orders of so many users, a thousand a second: (partition, key, value, timestamp) each."""
    for n in range(records):
        user = n * STRIDE % keys
        order = b'{"user":"user-%d","amount":%d,"item":"item-%d","paid":%s}'
        paid = b"true" if n % 3 else b"false"
        yield user % PARTITIONS, b"user-%d" % user, order % (user, n * 31 % 100, n % 50, paid), BEGIN + n


def users(keys: int) -> Iterator[Sent]:
    """A table of the users, older than the orders."""
    for n in range(keys):
        yield n % PARTITIONS, b"user-%d" % n, b'{"city":"city-%d","name":"name-%d"}' % (n % 100, n), BEGIN - 1


def growing(keys: int, phases: Sequence[tuple[int, int]]) -> Iterator[Sent]:
    """For each phase so many records of so many keys, which are spread over all keys."""
    for records, touched in phases:
        # A thousand keys are every thousandth, and the one after it, so that they are in all partitions.
        apart = keys // touched
        for n in range(records):
            nth = n * STRIDE % touched
            key = nth if touched == keys else nth // PARTITIONS * PARTITIONS * apart + nth % PARTITIONS
            yield key % PARTITIONS, b"user-%d" % key, b'{"n":%d}' % n, BEGIN + n


def produce(broker: Broker, topic: str, records: Iterator[Sent]) -> int:
    """Make a topic of the records; how many they are."""
    broker.create(topic, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    sent = 0
    for partition, key, value, timestamp in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
    if left := producer.flush(120):
        raise RuntimeError(f"{left} of {sent} records for {topic} have not reached the broker")
    return sent


@contextmanager
def session(directory: Path, memory: str) -> Iterator[SparkSession]:
    """A local session over all cores, with as many shuffle partitions."""
    cores = os.cpu_count() or 1
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(map(str, jars("spark"))),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
    }
    spark = open_session("bench-spark", master=f"local[{cores}]", conf=settings, log=directory / "spark.log")
    try:
        yield spark
    finally:
        spark.stop()


class Bench:
    """A session, a broker, and how much a batch reads."""

    def __init__(self, spark: SparkSession, broker: Broker, directory: Path, batch: int) -> None:
        self._spark = spark
        self._broker = broker
        self._directory = directory
        self._batch = batch
        self._runs = 0

    def read(self, topic: str) -> DataFrame:
        """A topic through Spark's connector."""
        options = {
            "kafka.bootstrap.servers": self._broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self._batch),
        }
        return self._spark.readStream.format("kafka").options(**options).load()

    def start(self, frame: DataFrame, *, ends: bool) -> Any:
        """Run a query into nowhere."""
        self._runs += 1
        writer = frame.writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(self._directory / f"checkpoint-{self._runs}"))
        return (writer.trigger(availableNow=True) if ends else writer).start()

    def seconds(self, frame: DataFrame, records: int) -> float:
        """How long the batches of a query took."""
        query = self.start(frame, ends=True)
        query.awaitTermination()
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
        read = sum(batch["numInputRows"] for batch in batches)
        if read != records:
            raise AssertionError(f"the query has read {read:,} records of {records:,}")
        return sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000

    def digest(self, frame: DataFrame, what: str) -> tuple[int, int]:
        """How many results a query gives, and a sum over them that does not hang on their order."""
        results = F.count(F.lit(1)).alias("results")
        total = F.sum(F.crc32(F.expr(what).cast("string").cast("binary"))).alias("total")
        query = self.start(frame.observe("digest", results, total), ends=True)
        query.awaitTermination()
        seen = [batch["observedMetrics"]["digest"] for batch in query.recentProgress if batch["numInputRows"]]
        return sum(row["results"] for row in seen), sum(row["total"] or 0 for row in seen)

    def ways(self, job: Job) -> dict[str, Callable[[], DataFrame]]:
        """The job as a topology and by hand, each over a new reader."""

        def topology() -> DataFrame:
            frames = {topic: self.read(topic) for topic in job.topics}
            (results,) = to_dataframes(job.topology(), frames, Config("bench"), partitions=PARTITIONS).values()
            return results

        return {
            "ours": topology,
            "hand": lambda: job.by_hand({topic: self.read(topic) for topic in job.topics}),
        }

    def compare(self, job: Job, records: int, rounds: int) -> dict[str, float]:
        """The best time of either way."""
        ways = self.ways(job)
        digests = {way: self.digest(make(), what) for (way, make), what in zip(ways.items(), job.digest, strict=True)}
        if len(set(digests.values())) != 1:
            raise AssertionError(f"{job.name}: the two ways give other results: {digests}")
        best: dict[str, float] = {}
        for number in range(rounds):
            for way in sorted(ways, reverse=bool(number % 2)):
                seconds = self.seconds(ways[way](), records)
                best[way] = min(best.get(way, seconds), seconds)
        return best

    def growth(self, topic: str, phases: Sequence[int]) -> tuple[list[float], float]:
        """Records per second in each phase of a topic, a phase being so many records, and the time of a quiet batch."""
        # A count needs no clock; with one there are batches without records.
        config = Config("bench", max_task_idle=timedelta(seconds=1))
        frames = to_dataframes(count(topic), {topic: self.read(topic)}, config, partitions=PARTITIONS)
        query = self.start(frames["counts"], ends=False)
        seen: dict[int, tuple[int, float]] = {}
        while sum(not records for records, _ in seen.values()) < QUIET_BATCHES:
            if (error := query.exception()) is not None:
                raise error
            time.sleep(0.2)
            for batch in query.recentProgress:
                # Spark also reports that it has had nothing to do.
                if batch["numInputRows"]:
                    seen[batch["batchId"]] = _passed(batch, topic), batch["durationMs"]["triggerExecution"] / 1000
        query.stop()
        batches = [seen[number] for number in sorted(seen)]
        rates = []
        for wanted in phases:
            taken: list[tuple[int, float]] = []
            while sum(records for records, _ in taken) < wanted:
                taken.append(batches.pop(0))
            passed = sum(records for records, _ in taken)
            if passed != wanted:
                raise AssertionError(f"{topic}: a batch lies in two phases ({passed:,} records, not {wanted:,})")
            rates.append(wanted / sum(seconds for _, seconds in taken))
        # The first ones are still warm from the others' work.
        return rates, statistics.median(seconds for records, seconds in batches[2:] if not records)


def _passed(batch: Mapping[str, Any], topic: str) -> int:
    """How many records of a topic a batch has read."""
    total = 0
    for source in batch["sources"]:
        if "Kafka" in source["description"]:
            # JSON, which Spark gives as text; null at the beginning.
            ends, starts = (json.loads(source[at] or "null") or {} for at in ("endOffset", "startOffset"))
            total += sum(ends.get(topic, {}).values()) - sum(starts.get(topic, {}).values())
    return total


def machine() -> str:
    """What the numbers were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    return (
        f"{datetime.date.today()}, {os.cpu_count()} cores ({model}), Python {platform.python_version()}, "
        f"Spark {pyspark.__version__}, {java}"
    )


def show_jobs(bench: Bench, jobs: Sequence[Job], records: int, keys: int, given: int | None) -> None:
    titles = f"{'rounds':>7}{'ours':>8}{'by hand':>9}{'ratio':>8}{'aim':>7}"
    print(f"\n{'thousand records per second':<34}{titles}", flush=True)
    for job in jobs:
        total = records + (keys if "users" in job.topics else 0)
        rounds = given or job.rounds
        best = bench.compare(job, total, rounds)
        ours, hand = (total / best[way] for way in ("ours", "hand"))
        verdict = "met" if ours / hand >= job.aim else "missed"
        print(
            f"{job.name:<34}{rounds:>7}{ours / 1000:>8,.1f}{hand / 1000:>9,.1f}"
            f"{ours / hand:>7.2f}x{job.aim:>6.2f}x  {verdict}",
            flush=True,
        )


def show_growth(bench: Bench, broker: Broker, sizes: Sequence[int], records: int, batch: int) -> None:
    few = f"{FEW:,} keys"
    print(f"\n{'thousand records/s':<20}{'new keys':>10}{'all keys':>10}{few:>12}{'quiet batch':>13}", flush=True)
    for keys in sizes:
        filling = -(-keys // batch) * batch
        phases = [filling, records, *([records] if keys == max(sizes) else [])]
        touched = [keys, keys, FEW][: len(phases)]
        topic = f"growth-{keys}"
        produce(broker, topic, growing(keys, list(zip(phases, touched, strict=True))))
        rates, quiet = bench.growth(topic, phases)
        shown = [f"{rate / 1000:,.1f}" for rate in rates] + ["" for _ in range(3 - len(rates))]
        print(f"{keys:>12,} keys   {shown[0]:>10}{shown[1]:>10}{shown[2]:>12}{quiet:>11.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="of each job, and of each phase of the growth")
    parser.add_argument("--keys", type=int, default=10_000, help="users in the jobs")
    parser.add_argument("--batch", type=int, default=250_000, help="records in a batch; a divisor of --records")
    parser.add_argument("--rounds", type=int, help="how often the two ways take turns (default: each job's own)")
    parser.add_argument("--growth", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="numbers of keys")
    parser.add_argument("--only", help="jobs whose names contain this")
    parser.add_argument("--memory", default="3g", help="of the JVM")
    chosen = parser.parse_args()
    if chosen.records % chosen.batch or chosen.batch % PARTITIONS:
        parser.error(f"--batch must divide --records, and {PARTITIONS} must divide --batch")
    jobs = [job for job in JOBS if chosen.only is None or chosen.only in job.name]
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        broker = Broker(directory / "broker").start()
        try:
            with session(directory, chosen.memory) as spark:
                print(machine())
                print(
                    f"{chosen.records:,} records of {chosen.keys:,} keys in {PARTITIONS} partitions of Kafka, "
                    f"batches of {chosen.batch:,}; the best round of each way"
                )
                produce(broker, "orders", orders(chosen.records, chosen.keys))
                produce(broker, "users", users(chosen.keys))
                bench = Bench(spark, broker, directory, chosen.batch)
                show_jobs(bench, jobs, chosen.records, chosen.keys, chosen.rounds)
                show_growth(bench, broker, chosen.growth, chosen.records, chosen.batch)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
