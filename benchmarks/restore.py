"""State restored from a changelog on Kafka, beside a bare loop over the same records: `make bench-restore`.

A million keys are written to a changelog, in the bytes in which a count is logged. A worker that finds no state fetches
them before its task starts; the loop consumes the same topic and puts keys and values into RocksDB in write batches. It
knows no stores, keeps no place to go on from and looks after nothing else. Both run in the same process, taking turns,
against a real broker on this machine; the best of some rounds counts, and the ratio more than the rates.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from rocksdict import Options, Rdict, WriteBatch

from headwater import Config, StreamsBuilder, Topology
from headwater.streams.kafka.reader import FETCHING
from headwater.streams.run import open_app
from tests.kafka.broker import Broker

APP = "restore"
CHANGELOG = f"{APP}-counts-changelog"
BATCH = 20_000
PATIENCE = 600.0


def counting() -> Topology:
    """Records per key."""
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts")
    return builder.build()


def fill(broker: Broker, keys: int) -> None:
    """Log a count for each key."""
    broker.create("in")
    broker.create(CHANGELOG, cleanup_policy="compact")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(keys):
        while True:
            try:
                count = (number % 100).to_bytes(8, "big")
                producer.produce(CHANGELOG, count, b"user-%07d" % number, 0, timestamp=1_700_000_000_000 + number)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(PATIENCE):
        raise SystemExit("the changelog could not be written")


def bare_loop(broker: Broker, folder: Path, keys: int) -> float:
    """Seconds to consume all records and put them into RocksDB, batch by batch."""
    consumer = Consumer(
        {**FETCHING, "bootstrap.servers": broker.bootstrap, "group.id": "bare", "enable.auto.commit": False}
    )
    database = Rdict(str(folder), Options(raw_mode=True))
    consumer.assign([TopicPartition(CHANGELOG, 0, OFFSET_BEGINNING)])
    began, done = time.perf_counter(), 0
    while done < keys:
        messages: list[Any] = consumer.consume(BATCH, 0.1)
        batch = WriteBatch(raw_mode=True)
        for message in messages:
            batch.put(message.key(), message.value())
        database.write(batch)
        done += len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    database.close()
    return seconds


class Told(logging.Handler):
    """Keeps how long a restore has taken, as the worker says it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if "records restored in" in record.msg and isinstance(record.args, tuple):
            self.seconds = float(str(record.args[2]))


def worker(broker: Broker, folder: Path, keys: int) -> float:
    """Seconds a worker without state takes to fetch it."""
    told, log = Told(), logging.getLogger("headwater")
    log.addHandler(told)
    log.setLevel(logging.INFO)
    config = Config(APP, state_dir=folder)
    deadline = time.monotonic() + PATIENCE
    try:
        with open_app(counting(), config, f"kafka://{broker.bootstrap}") as app:
            while told.seconds is None:
                if time.monotonic() > deadline:
                    raise SystemExit("the worker does not end its restore")
                time.sleep(0.05)
            found = app.store("counts").get(f"user-{keys - 1:07}")
            assert found == (keys - 1) % 100, f"the last key was counted to {found}"
    finally:
        log.removeHandler(told)
    return told.seconds


def measure(broker: Broker, keys: int, rounds: int) -> dict[str, float]:
    """The best seconds of loop and worker."""
    best: dict[str, float] = {}
    for number in range(rounds):
        for name, way in (("loop", bare_loop), ("worker", worker)):
            folder = Path(tempfile.mkdtemp(prefix="headwater-restore-"))
            try:
                seconds = way(broker, folder, keys)
            finally:
                shutil.rmtree(folder)
            print(f"round {number + 1}, {name:<6} {seconds:6.2f} s  {keys / seconds / 1e3:6.0f} k/s", flush=True)
            best[name] = min(best.get(name, seconds), seconds)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-restore-") as folder:
        broker = Broker(Path(folder) / "kafka").start()
        try:
            began = time.monotonic()
            fill(broker, chosen.keys)
            print(f"{chosen.keys / 1e6:.1f} M keys logged in {time.monotonic() - began:.0f} s", flush=True)
            best = measure(broker, chosen.keys, chosen.rounds)
        finally:
            broker.kill()
    rates = {name: chosen.keys / seconds / 1e3 for name, seconds in best.items()}
    print(f"loop {rates['loop']:.0f} k/s, worker {rates['worker']:.0f} k/s")
    print(f"ratio {best['loop'] / best['worker']:.2f} (aim: at least 0.6)")


if __name__ == "__main__":
    main()
