"""Processes that write, read and clean one log at the same time, run by `python -m tests.state.log.workers`, until the
file `stop` is there beside it.

Each batch is one producer's with one sequence number, and each of its records says all of that: producer, sequence, its
number in the batch and the batch's length. So a reader knows of any record which must follow.
"""

import json
import sys
import time
from pathlib import Path
from random import Random
from zlib import crc32

from headwater.state.log import Log, OutOfRange, Partition, Record
from headwater.state.log.batch import NewRecord

TOPICS = ("plain", "compacted")
KEYS = 20
# How often each is to do its work at least.
ENOUGH = 20


def going(folder: Path, until: float, name: str, done: int) -> bool:
    """Whether to go on; who has done enough leaves a file of its name beside the log."""
    if done > ENOUGH:
        (folder.parent / name).touch()
    return time.time() < until and not (folder.parent / "stop").exists()


def batch(producer: str, sequence: int, random: Random) -> list[NewRecord]:
    count = random.choice([1, 1, 2, 5, 40])
    records: list[NewRecord] = []
    for number in range(count):
        text = b"%s %d %d %d %s" % (producer.encode(), sequence, number, count, b"x" * random.randint(0, 400))
        key = b"%s %d" % (producer.encode(), sequence % KEYS)
        records.append((key, b"%08x " % crc32(text) + text, sequence, ((producer, None),)))
    return records


def said(record: Record) -> tuple[str, int, int, int]:
    """Return producer, sequence, number and count; the record's own checksum must be right."""
    value = record[1]
    assert value is not None
    checksum, _, text = value.partition(b" ")
    assert checksum == b"%08x" % crc32(text), record
    producer, sequence, number, count, _ = text.split(b" ")
    assert record[3] == ((producer.decode(), None),)
    assert record[2] == int(sequence)
    return producer.decode(), int(sequence), int(number), int(count)


def write(folder: Path, until: float, random: Random, name: str) -> int:
    written = 0
    print("begins", flush=True)
    while going(folder, until, name, written):
        with Log.open(folder) as log:
            partitions = [log.partition(topic, 0) for topic in TOPICS]
            for _ in range(random.randint(1, 30)):
                partition = random.choice(partitions)
                last = partition.last_sequence(name)
                sequence = 0 if last is None else last + 1
                records = batch(name, sequence, random)
                assert partition.append(records, producer=name, sequence=sequence, sync=random.random() < 0.01)
                if random.random() < 0.1:
                    assert partition.append(records, producer=name, sequence=sequence) is None
                written += 1
    return written


def clean(folder: Path, until: float, random: Random, name: str) -> int:
    cleaned = 0
    while going(folder, until, name, cleaned):
        with Log.open(folder) as log:
            plain, compacted = (log.partition(topic, 0) for topic in TOPICS)
            for _ in range(random.randint(1, 5)):
                plain.delete_before(random.randint(plain.start, max(plain.start, plain.end - 500)))
                cleaned += compacted.compact(int(time.time() * 1_000))
                log.maintain()
                time.sleep(random.random() * 0.02)
    return cleaned


class Watcher:
    """Follows one topic, and knows what may come next."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.offset: int | None = None
        self.last: dict[str, tuple[int, int, int]] = {}
        self.seen = 0

    def take(self, partition: Partition, random: Random) -> None:
        if self.offset is None:
            self.offset, self.last = partition.start, {}
        try:
            records = partition.read(self.offset, random.choice([1, 10, 1_000]), random.choice([1, 10_000, 1 << 20]))
        except OutOfRange as gone:
            if self.offset >= gone.start:
                # No reader is ever above the end.
                raise
            self.offset = None
            return
        for record in records:
            self._check(record)
        if records:
            self.offset = records[-1][4] + 1

    def _check(self, record: Record) -> None:
        assert self.offset is not None
        producer, sequence, number, count = said(record)
        before = self.last.get(producer)
        if self.topic == "plain":
            assert record[4] == self.offset
            if before is not None:
                follows = (sequence, number) == (before[0], before[1] + 1) and before[1] + 1 < before[2]
                begins = (sequence, number) == (before[0] + 1, 0) and before[1] + 1 == before[2]
                assert follows or begins, (before, record)
        elif before is not None:
            assert (sequence, number) > before[:2], (before, record)
        assert record[4] >= self.offset
        self.last[producer] = (sequence, number, count)
        self.offset = record[4] + 1
        self.seen += 1


def read(folder: Path, until: float, random: Random, name: str) -> int:
    watchers = [Watcher(topic) for topic in TOPICS]
    while going(folder, until, name, min(watcher.seen for watcher in watchers)):
        with Log.open(folder) as log:
            partitions = [log.partition(watcher.topic, 0) for watcher in watchers]
            if random.random() < 0.1:
                # From the beginning again.
                for watcher in watchers:
                    watcher.offset = None
            for _ in range(random.randint(1, 50)):
                for watcher, partition in zip(watchers, partitions, strict=True):
                    watcher.take(partition, random)
    return min(watcher.seen for watcher in watchers)


if __name__ == "__main__":
    role, where, end, seed = sys.argv[1:]
    done = {"write": write, "clean": clean, "read": read}[role](Path(where), float(end), Random(seed), f"{role}{seed}")
    print(json.dumps(done))
