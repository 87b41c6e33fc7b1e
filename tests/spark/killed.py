"""What the restart tests run: a topology, its input and what came of it; and the process with a Spark of its own that
runs it in several places until it is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headwater import Config, Json, KeyValue, Processor, Record, StreamsBuilder, StreamsError, TimeWindows, Topology
from headwater.dsl.partitioner import partition_for
from headwater.state.log import Log
from headwater.streams.spark import query as queries
from headwater.streams.spark.brokers import open_broker
from headwater.streams.spark.kafka_writer import KafkaWriter
from headwater.streams.spark.query import SparkBackend, SparkQuery, Writer
from headwater.streams.spark.session import open_session
from tests.kafka.jars import jars

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
SOURCES = ("orders", "users", "clicks")
OUTPUTS = ("enriched", "digests", "clicked", "pulses")
STORES = ("users", "digests")
PATIENCE = 600.0
# What a victim says.
JVM, BATCH, STOPPED, FAILED = "jvm", "batch", "stopped", "failed"

New = tuple[bytes, bytes, int]


# ---- what is run -------------------------------------------------------------------------------------------------


class Pulse(Processor):
    """Counts the ticks of the wall clock that a shard has had, in a store and in what it sends."""

    def init(self, context: Any) -> None:
        self.context = context
        self._count = context.store("pulses")
        context.schedule(timedelta(seconds=1), "wall-clock", self.tick)

    def tick(self, now: int) -> None:
        shard = self.context.task_id
        count = (self._count.get(shard) or 0) + 1
        self._count.put(shard, count)
        self.context.forward(Record(shard, [count, now], now))

    def process(self, record: Record) -> None:
        """What it stands behind is only there so that it has a task."""


def digest(shop: str, order: dict[str, Any], so_far: list[int]) -> list[int]:
    """A number that says which orders there were and in which order."""
    return [so_far[0] + 1, (so_far[1] * 31 + order["number"]) % 1_000_003]


def topology(name: str) -> Topology:
    """Results of three kinds of stages: a join, windows behind a repartition, and one that keeps nothing."""
    builder = StreamsBuilder(value=Json())
    users = builder.table(f"{name}-users", store="users")
    orders = builder.stream(f"{name}-orders")
    enriched = orders.join(users, lambda order, user: {**order, "country": user["country"]})
    enriched.to(f"{name}-enriched")
    (
        enriched.group_by(lambda user, order: order["shop"], name="by-shop")
        # Nothing is ever late: how the orders of several shards are mixed, and with it stream time, is up to batches.
        .windowed_by(TimeWindows.of(timedelta(seconds=2), grace=timedelta(days=1)))
        .aggregate(lambda: [0, 0], digest, store="digests", value=Json())
        .to_stream()
        .to(f"{name}-digests")
    )
    builder.stream(f"{name}-clicks").filter(lambda user, n: n % 3 > 0).map_values(lambda n: -n).to(f"{name}-clicked")
    builder.add_store(KeyValue("pulses", value=Json()))
    orders.process(Pulse, stores=["pulses"]).to(f"{name}-pulses")
    return builder.build()


@dataclass
class Input:
    """All that is produced, by topic and partition, and how much of it has been."""

    records: dict[tuple[str, int], list[New]]

    @classmethod
    def of(cls, orders: int, seed: int = 1) -> "Input":
        """Orders of users who move between them. Times are unlike each other, and not always in order.

        A shop takes the orders of one partition only, so that in which order it has them is up to the input.
        """
        rng = random.Random(seed)
        users = [f"user-{number}" for number in range(20)]
        made: dict[tuple[str, int], list[New]] = defaultdict(list)

        def add(topic: str, key: str, value: object, at: int) -> None:
            made[topic, partition_for(key.encode(), PARTITIONS)].append((key.encode(), json.dumps(value).encode(), at))

        for at, user in enumerate(users):
            add("users", user, {"country": rng.choice("ABC")}, 1 + at)
        for number in range(orders):
            at = 1_000 + 20 * number
            # Orders wait for news of somebody in the same partition; the last ones for the end of the input.
            if number < 0.95 * orders:
                add("users", rng.choice(users), {"country": rng.choice("ABC")}, at)
            user = rng.choice(users)
            home = partition_for(user.encode(), PARTITIONS)
            late = 1_000 * rng.randrange(5) if rng.random() < 0.1 else 0
            order = {"number": number, "shop": f"shop-{home}-{rng.randrange(4)}"}
            add("orders", user, order, max(100, at + 1 - late))
            add("clicks", rng.choice(users), number, at + 2)
        return cls(dict(made))

    def part(self, begin: float, end: float) -> dict[tuple[str, int], list[New]]:
        """The records from one share of each partition to another."""
        return {
            place: records[round(begin * len(records)) : round(end * len(records))]
            for place, records in self.records.items()
        }


@dataclass(frozen=True)
class Place:
    """A log, or a part of a Kafka, with all topics of the topology, and the checkpoint of a query there."""

    name: str
    broker: str
    checkpoint: str
    # Whether a batch that has been written is known to be there.
    protected: bool = True

    @property
    def committed(self) -> int:
        """The number of the last batch that Spark has committed, -1 for none."""
        return _last(Path(self.checkpoint) / "commits")

    @property
    def begun(self) -> int:
        """The number of the last batch that was begun."""
        return _last(Path(self.checkpoint) / "offsets")

    def produce(self, records: Mapping[tuple[str, int], Iterable[New]]) -> None:
        """Append input."""
        if self.broker.startswith("kafka://"):
            producer = Producer({"bootstrap.servers": self.broker.removeprefix("kafka://"), "linger.ms": 1})
            for (topic, number), rows in records.items():
                for key, value, at in rows:
                    producer.produce(f"{self.name}-{topic}", value, key, number, timestamp=at)
            assert producer.flush(PATIENCE) == 0
            return
        with Log.open(self.broker.removeprefix("log://")) as log:
            for (topic, number), rows in records.items():
                if rows:
                    with log.partition(f"{self.name}-{topic}", number) as partition:
                        partition.append([(key, value, at, ()) for key, value, at in rows])

    def start(self, spark: SparkSession, **options: Any) -> SparkQuery:
        """Start the query here, or go on with it."""
        return SparkBackend(spark).start(
            topology(self.name),
            Config(app_id=self.name, max_task_idle=None),
            broker=self.broker,
            checkpoint=self.checkpoint,
            partitions=2,
            **options,
        )


def _last(folder: Path) -> int:
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)


# ---- with a hand on the writing ----------------------------------------------------------------------------------


@dataclass
class Watched:
    """A broker for queries that are killed: it says when a batch begins, its writers take a moment, so that some are
    killed in between, and it can stop the last batch, the drain, when that has been written and Spark is to commit it.
    """

    broker: Any
    unprotected: frozenset[str]
    moment: float = 0.0
    # Told when it has stopped there; None: it does not.
    stopped: threading.Semaphore | None = None
    frames: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)

    def frame(self, *arguments: Any) -> Any:
        """Called by the query when it starts, and again for the drain."""
        self.frames += 1
        return self.broker.frame(*arguments)

    def writer(self, query: str, config: Config) -> Any:
        """Called by the query when a batch begins."""
        print(BATCH, config.app_id, flush=True)
        if config.app_id not in self.unprotected:
            return Slow(self.broker.writer(query, config), self.moment)
        if self.broker.is_kafka:
            checking = self.broker.writer(query, config)
            return KafkaWriter(self.broker._bootstrap, query, markers=checking._markers, check=False)
        # As another query, of which the log knows nothing.
        return self.broker.writer(os.urandom(8).hex(), config)

    def maintain(self) -> None:
        """Called by the query when a batch is written."""
        if self.stopped is not None and self.frames == 2:
            self.stopped.release()
            threading.Event().wait()
        self.broker.maintain()


@dataclass
class Slow:
    """A writer that takes a moment before and after."""

    writer: Writer
    moment: float

    def write(self, stage: int, shard: int, batch_id: int, outputs: Iterable[tuple[str, list[Any]]]) -> None:
        time.sleep(self.moment)
        self.writer.write(stage, shard, batch_id, outputs)
        time.sleep(self.moment)


def watch(places: Iterable[Place], **options: Any) -> Any:
    """What queries have instead of `open_broker`."""
    unprotected = frozenset(place.name for place in places if not place.protected)
    return lambda address, config: Watched(open_broker(address, config), unprotected, **options)


# ---- the process -------------------------------------------------------------------------------------------------

SETTINGS = {
    "spark.driver.memory": "512m",
    # It does not live long enough for the better compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    # On a busy machine a Python worker takes longer than 15 seconds to start.
    "spark.python.authenticate.socketTimeout": "120s",
}


class Victim:
    """A process that runs the queries of some places, in a JVM of its own, until it is killed.

    - `max_records`: the most records a batch reads.
    - `moment`: how long a shard's writer waits before and after, in seconds.
    - `stop`: do what is there, in one place after the other, and stop in the drain of each.
    """

    def __init__(self, folder: Path, places: Iterable[Place], **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        told = {"folder": str(folder), "places": [asdict(place) for place in places], "options": options}
        command = [sys.executable, "-c", "from tests.spark.killed import run; run()", json.dumps(told)]
        self._log = folder / "driver.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._jvm = int(self.await_line(JVM).split()[1])

    def await_line(self, start: str) -> str:
        """The next line that starts so."""
        assert self._process.stdout is not None
        give_up = threading.Timer(PATIENCE, self._process.kill)
        give_up.start()
        try:
            for line in self._process.stdout:
                assert not line.startswith(FAILED), line
                if line.startswith(start):
                    return line
        finally:
            give_up.cancel()
        raise AssertionError(f"The process has ended before {start!r}: {self._log.read_text()[-4000:]}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9 the JVM and the driver. The workers in Python that it had die when they notice."""
        assert self.alive
        os.kill(self._jvm, signal.SIGKILL)
        self._process.kill()
        rest, _ = self._process.communicate()
        assert FAILED not in rest, rest


def run() -> None:
    """The life of a victim."""
    told = json.loads(sys.argv[1])
    folder = told["folder"]
    places = [Place(**place) for place in told["places"]]
    max_records, moment, stop = (told["options"].get(name) for name in ("max_records", "moment", "stop"))
    connector = ",".join(map(str, jars("spark")))
    spark = open_session(
        "killed",
        master="local[2]",
        conf={**SETTINGS, "spark.jars": connector, "spark.local.dir": folder},
        log=Path(folder) / "spark.log",
    )
    assert spark._jvm is not None
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    print(JVM, jvm, flush=True)
    threading.Thread(target=_die_with_the_test, args=(jvm,), daemon=True).start()
    stopped = threading.Semaphore(0) if stop else None
    queries.open_broker = watch(places, moment=moment or 0.0, stopped=stopped)  # type: ignore[attr-defined]
    for place in places:
        query = place.start(spark, trigger="available-now" if stop else None, max_records=max_records)
        threading.Thread(target=_await_end, args=(query,), daemon=True).start()
        if stopped is not None:
            stopped.acquire()
    if stop:
        print(STOPPED, flush=True)
    threading.Event().wait()


def _await_end(query: SparkQuery) -> None:
    try:
        query.awaitTermination()
        print(FAILED, query.name, "has ended", flush=True)
    except StreamsError as error:
        print(FAILED, query.name, error, flush=True)


def _die_with_the_test(jvm: int) -> None:
    sys.stdin.read()
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
