"""An application made to begin anew: its state, its internal topics and its offsets go; its inputs and outputs stay. It
owns what belongs to an application on the embedded log and in which order it is deleted; where inputs are read from
next is written into the tasks' databases, the one place that counts. On Kafka it is streams/kafka/reset.py's to say.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.state.log import CorruptLog, Group, Log
from headwater.state.rocks import RocksBackend, drop_stores
from headwater.streams.broker import is_kafka, open_log
from headwater.streams.changes import TASK, Changes, memory_key, store_memories
from headwater.streams.consumer import first_offset
from headwater.streams.identity import Identity, identity_of, without_unused
from headwater.streams.kafka.settings import kafka_settings
from headwater.streams.log_connection import OUTBOX, RESETTING, member_name
from headwater.streams.log_record import LogRecord
from headwater.streams.plan import Plan, plan
from headwater.streams.run import INTERRUPTED_RESET, state_directory
from headwater.streams.sockets import SOCKETS
from headwater.streams.task import TaskSpec

__all__ = [
    "Reset",
    "Target",
    "all_tasks",
    "checked_inputs",
    "identity_now",
    "marked",
    "open_reset",
    "own_topics",
    "resetting",
]

# Where inputs are to be read from; None: where their sources say.
Target: TypeAlias = Literal["earliest", "latest"] | int | datetime | None
Place: TypeAlias = tuple[str, int]


@dataclass
class Reset:
    """What a reset deletes, and for each input (offset before, offset after); `run()` does it.

    `stores` are those whose rows are deleted where others stay.
    """

    state: list[Path]
    topics: list[str]
    offsets: dict[Place, tuple[int | None, int | None]]
    _do: Callable[[], None]
    stores: tuple[str, ...] = ()

    def run(self) -> None:
        """Do it; if it is interrupted, no worker starts here until it has been done again."""
        self._do()


@contextmanager
def marked(directory: Path) -> Iterator[None]:
    """While a reset is under way a file says so, and stays if it is interrupted."""
    marker = directory / INTERRUPTED_RESET
    directory.mkdir(parents=True, exist_ok=True)
    marker.touch()
    yield
    marker.unlink()


def own_topics(topology: Topology, app_id: str, record: Identity | None) -> set[str]:
    """The repartition topics that an application has made, by their names outside: now, and under earlier names."""
    names = set(topology.internal_topics)
    if record is not None:
        for topics in (record.topics, record.unused_topics):
            names |= {topic.kept or name for name, topic in topics.items()}
    return {f"{app_id}-{topic}" for topic in names}


@contextmanager
def open_reset(
    topology: Topology,
    config: Config,
    broker: str,
    target: Target = None,
    topics: Collection[str] = (),
    *,
    unused: bool = False,
) -> Iterator[Reset]:
    """A reset of an application, while no worker of it can start; refused if one is alive.

    The target holds for these input topics, or for all. With `unused`, only what it no longer uses is deleted.
    """
    if is_kafka(broker):
        # First of all: it says so where the client is not installed.
        kafka_settings(broker, config.kafka)
        from headwater.streams.kafka.reset import planned_reset, planned_reset_of_unused

        if unused:
            yield planned_reset_of_unused(config, broker)
        else:
            yield planned_reset(topology, config, broker, target, topics)
        return
    with open_log(broker, create=False) as log, resetting(log, config.app_id) as group:
        if unused:
            yield _planned_of_unused(config, broker, log, group)
        else:
            yield _planned(topology, config, broker, log, group, target, topics)


@contextmanager
def resetting(log: Log, app_id: str) -> Iterator[Group]:
    """While in it, no worker of an application can start; refused if one is alive."""
    group = Group(log, app_id)
    # Before joining, which would have live workers give tasks up; and after, since one may have started.
    _refuse_if_alive(group)
    group.join(member_name(), RESETTING)
    try:
        _refuse_if_alive(group)
        yield group
    finally:
        group.close()


def _refuse_if_alive(group: Group) -> None:
    alive = [member for member in group.members() if member.note != RESETTING]
    if alive:
        workers = "a live worker" if len(alive) == 1 else f"{len(alive)} live workers"
        raise StreamsError(f"{group.name!r} has {workers}: stop it first, then reset it.")


def _planned(
    topology: Topology, config: Config, broker: str, log: Log, group: Group, target: Target, topics: Collection[str]
) -> Reset:
    directory = state_directory(config, broker).absolute()
    there = {info.name: info.partitions for info in log.topics()}
    record = LogRecord(directory, config.app_id, log.files)
    internal = sorted(own_topics(topology, config.app_id, record.load_if_sound()) & there.keys())
    inputs = checked_inputs(topology, config, there, topics)
    try:
        before, damaged = group.committed(), False
    except CorruptLog:
        # Nothing that it said is needed any more.
        before, damaged = {}, True
    starts: dict[Place, int] = {}
    if target is not None:
        for topic in sorted(topics or inputs):
            for number in range(there[topic]):
                starts[topic, number] = _offset(log, topic, number, target)
    offsets = {
        (topic, number): (before.get((topic, number)), starts.get((topic, number)))
        for topic in sorted(inputs)
        for number in range(there[topic])
    }
    state = [path for path in (directory / "tasks", directory / SOCKETS) if path.exists()]
    by_task = _by_task(topology, config, there, starts)

    def run() -> None:
        with marked(directory):
            for path in state:
                shutil.rmtree(path)
            record.remove()
            if damaged:
                group.begin_anew()
            for topic in internal:
                log.delete_topic(topic)
            # Those of topics that are gone too: an internal one that was lost is a reason for a reset.
            for topic in {*inputs, *(topic for topic, _ in before)}:
                group.forget(topic)
            group.commit(starts)
            if by_task:
                # What the offsets that are written now belong to.
                record.store(identity_now(topology, config, there))
            for spec, own in by_task:
                _write_offsets(directory / "tasks" / spec.task_id, spec, own)

    return Reset(state, internal, offsets, run)


def _planned_of_unused(config: Config, broker: str, log: Log, group: Group) -> Reset:
    """What was taken out of the application before it last started. Interrupted, it is simply done again: until the
    record is replaced, nothing of it can come back."""
    directory = state_directory(config, broker).absolute()
    record = LogRecord(directory, config.app_id, log.files)
    known = record.load() or Identity(config.app_id)
    there = {info.name for info in log.topics()}
    internal = sorted({f"{config.app_id}-{topic.kept or name}" for name, topic in known.unused_topics.items()} & there)
    gone = [part for part in known.parts if part.gone]
    tasks = sorted(path for path in (directory / "tasks").glob("*_*") if path.is_dir())
    numbers = {str(part.number) for part in gone}
    state = [path for path in tasks if path.name.partition("_")[0] in numbers]
    read = {topic for part in known.parts if not part.gone for topic in part.topics}

    def run() -> None:
        for path in state:
            shutil.rmtree(path)
        for path in tasks:
            if path not in state:
                _drop(path, [store.kept or name for name, store in known.unused.items()])
        for topic in internal:
            log.delete_topic(topic)
        for topic in {topic for part in gone for topic in part.topics} - read:
            group.forget(topic)
        record.store(without_unused(known))

    return Reset(state, internal, {}, run, tuple(known.unused))


def _drop(directory: Path, stores: list[str]) -> None:
    """Delete the rows of stores, and what else a task keeps of them."""
    if not stores:
        return
    backend = RocksBackend(directory, [TASK], sync=True, others=True)
    try:
        rows = [key for key, _ in backend.scan(TASK, b"memory\0", b"memory\1")]
        own = {key for store in stores for key in map(memory_key, store_memories(store))}
        backend.write({TASK: {key: None for key in rows if key in own or any(key.startswith(k + b" ") for k in own)}})
    finally:
        backend.close()
    drop_stores(directory, stores)


def _write_offsets(directory: Path, spec: TaskSpec, offsets: dict[Place, int]) -> None:
    backend = RocksBackend(directory, [*spec.backend_stores(), OUTBOX], sync=True)
    try:
        backend.write(Changes({}, {}, offsets).batch())
    finally:
        backend.close()


def checked_inputs(topology: Topology, config: Config, there: dict[str, int], topics: Collection[str]) -> set[str]:
    """The topics outside that an application reads and that exist; refuse others that are named."""
    inputs = _inputs(topology, there)
    if unknown := [topic for topic in topics if topic not in inputs]:
        known = ", ".join(sorted(inputs)) or "none that exists"
        raise StreamsError(f"{config.app_id!r} does not read {', '.join(unknown)}: its inputs are {known}.")
    return inputs


def _inputs(topology: Topology, there: dict[str, int], nodes: Collection[str] | None = None) -> set[str]:
    """The topics outside that the application's tasks read (one's, by its nodes) and that exist."""
    found: set[str] = set()
    for source in topology.sources():
        if source.is_global or (nodes is not None and source.name not in nodes):
            continue
        if source.pattern is not None:
            found |= {topic for topic in there if source.pattern.fullmatch(topic)}
        found |= {topic for topic in source.topics if topic not in topology.internal_topics and topic in there}
    return found


def _offset(log: Log, topic: str, number: int, target: Literal["earliest", "latest"] | int | datetime) -> int:
    with log.partition(topic, number) as partition:
        return first_offset(partition, min(target, partition.end) if isinstance(target, int) else target)


def _by_task(
    topology: Topology, config: Config, there: dict[str, int], starts: dict[Place, int]
) -> list[tuple[TaskSpec, dict[Place, int]]]:
    """The offsets that each task begins at."""
    if not starts:
        return []
    found = []
    for spec in _plan(topology, config, there).tasks:
        read = _inputs(topology, there, spec.nodes)
        own = {place: at for place, at in starts.items() if place[1] == spec.partition and place[0] in read}
        if own:
            found.append((spec, own))
    return found


def all_tasks(topology: Topology, config: Config, there: dict[str, int]) -> tuple[TaskSpec, ...]:
    """The tasks of an application over the topics that exist."""
    return tuple(_plan(topology, config, there).tasks)


def identity_now(topology: Topology, config: Config, there: dict[str, int]) -> Identity:
    """What an application is, over the topics that exist."""
    return identity_of(topology, config, _plan(topology, config, there).partitions)


def _plan(topology: Topology, config: Config, there: dict[str, int]) -> Plan:
    def partitions_of(topic: str) -> int:
        if topic in there:
            return there[topic]
        matching = [
            count
            for source in topology.sources()
            if source.pattern is not None and source.pattern.pattern == topic
            for name, count in there.items()
            if source.pattern.fullmatch(name)
        ]
        if not matching:
            raise StreamsError(f"The topic {topic!r} does not exist: create it (headwater topics create {topic}).")
        return max(matching)

    return plan(topology, config, partitions_of)
