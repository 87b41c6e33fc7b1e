"""`headwater reset --stream-time`: which time an application's tasks are set back to, and how they are asked to, on the
embedded log and on Kafka. It owns the choice of the time; what a task does then is set_back.py's.

Unless a time is given it is that of the wall clock, or of the oldest record that is next to be read somewhere in the
application: set further, records that wait would count as late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.dsl.config import Config
from headwater.dsl.timestamps import SourceRecord
from headwater.dsl.topology import Source, Topology
from headwater.errors import StreamsError
from headwater.state.log import Log
from headwater.state.rocks import RocksBackend
from headwater.streams.broker import is_kafka, open_log
from headwater.streams.changes import read_committed
from headwater.streams.clocks import system_clock
from headwater.streams.consumer import Place
from headwater.streams.identity import adopted
from headwater.streams.kafka.settings import kafka_settings
from headwater.streams.log_connection import OUTBOX
from headwater.streams.log_record import LogRecord
from headwater.streams.queues import RawRecord
from headwater.streams.reset import all_tasks, identity_now, resetting
from headwater.streams.run import state_directory
from headwater.streams.set_back import SetBack, ask, reached
from headwater.streams.task import TaskSpec

__all__ = ["StreamTimes", "chosen", "open_stream_times"]


@dataclass
class StreamTimes:
    """The time to set stream times back to, and those there are, by task or input; `run()` does it."""

    to: int
    before: dict[str, int]
    _do: Callable[[], None]

    def run(self) -> None:
        """Ask every task to; each does it when it is opened next."""
        self._do()


@contextmanager
def open_stream_times(topology: Topology, config: Config, broker: str, to: int | None) -> Iterator[StreamTimes]:
    """An application's stream times, while no worker of it can start; refused if one is alive."""
    if is_kafka(broker):
        # First of all: it says so where the client is not installed.
        kafka_settings(broker, config.kafka)
        from headwater.streams.kafka.stream_time import kafka_stream_times

        yield kafka_stream_times(topology, config, broker, to)
        return
    with open_log(broker, create=False) as log, resetting(log, config.app_id):
        yield _on_log(topology, config, log, state_directory(config, broker).absolute() / "tasks", to)


def _on_log(topology: Topology, config: Config, log: Log, directory: Path, to: int | None) -> StreamTimes:
    there = {info.name: info.partitions for info in log.topics()}
    record = LogRecord(directory.parent, config.app_id, log.files)
    fit = record.compared(identity_now(topology, config, there), config.renamed)
    kept = adopted(topology, fit.identity)
    tasks = [spec for spec in all_tasks(kept, config, there) if (directory / spec.task_id).exists()]
    if not tasks:
        raise StreamsError(f"{config.app_id!r} has no state in {directory}: there is no stream time to set back.")
    before: dict[str, int] = {}
    offsets: dict[Place, int] = {}
    for spec in tasks:
        with _opened(directory, spec) as backend:
            own, memories = read_committed(backend)
        offsets |= {(topic, number): at for (topic, number), at in own.items() if number < there.get(topic, 0)}
        before[f"task {spec.task_id}"] = reached(memories)
    time = chosen(topology, config, _waiting(log, offsets)) if to is None else to

    def run() -> None:
        wanted = SetBack(time)
        for spec in tasks:
            with _opened(directory, spec) as backend:
                ask(backend, wanted)

    return StreamTimes(time, before, run)


@contextmanager
def _opened(directory: Path, spec: TaskSpec) -> Iterator[RocksBackend]:
    backend = RocksBackend(directory / spec.task_id, [*spec.backend_stores(), OUTBOX], sync=True, others=True)
    try:
        yield backend
    finally:
        backend.close()


def _waiting(log: Log, offsets: dict[Place, int]) -> Iterator[tuple[Place, RawRecord]]:
    """The next record of each input, where there is one."""
    for place, offset in offsets.items():
        with log.partition(*place) as partition:
            for record in partition.read(max(offset, partition.start), max_records=1):
                yield place, record


def chosen(topology: Topology, config: Config, waiting: Iterable[tuple[Place, RawRecord]]) -> int:
    """The time of the wall clock, or that of the oldest of these records."""
    times = [_event_time(topology, config, place, record) for place, record in waiting]
    return min([system_clock(), *(time for time in times if time >= 0)])


def _event_time(topology: Topology, config: Config, place: Place, raw: RawRecord) -> int:
    source = _source(topology, config, place[0])
    key, value, timestamp, headers, offset = raw
    if source is None or source.timestamp is None:
        return timestamp
    try:
        read = (None if key is None else source.key.decode(key), None if value is None else source.value.decode(value))
        return source.timestamp(SourceRecord(*read, timestamp, headers, *place, offset), -1)
    except Exception as error:
        raise StreamsError(
            f"{place[0]}-{place[1]}@{offset}, which is next to be read, has no timestamp ({error}): say which time to "
            "set stream time back to, --stream-time TIME, not after the oldest record that waits."
        ) from error


def _source(topology: Topology, config: Config, topic: str) -> Source | None:
    for source in topology.sources():
        internal = {f"{config.app_id}-{name}" for name in source.topics if name in topology.internal_topics}
        if topic in internal or topic in source.topics or (source.pattern and source.pattern.fullmatch(topic)):
            return source
    return None
