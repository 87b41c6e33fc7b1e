"""The log as a whole: a directory of topics, each a directory of partitions. It owns making, changing, listing and
deleting topics; what a partition holds is the partition's.

| path | what |
|---|---|
| `log` | says that this is a log, and of which format |
| `topics.lock` | held while a topic is made, changed or deleted |
| `topics/<name>/topic` | the topic's settings |
| `topics/<name>/<number>/` | a partition: `append.lock`, `manifest`, segments and their indexes |
| `topics/<name with a ~>` | a topic being made or deleted: not there yet, or no longer; names never have a ~ |
| `groups/` | the consumer groups |

Each change is one rename, so that a crash leaves all of it or nothing; what it left beside is removed by the next
change.
"""

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from weakref import WeakSet

import msgspec

from headwater.errors import StreamsError
from headwater.state.log import documents
from headwater.state.log.errors import CorruptLog, TopicExists, UnknownTopic, storing
from headwater.state.log.files import REAL_FILES, Files
from headwater.state.log.groups import Group, group_names
from headwater.state.log.manifest import make_partition
from headwater.state.log.partition import Partition
from headwater.state.log.repair import TopicRepair, repair_topic
from headwater.state.log.topics import DAY_MS, TOPIC_NAME, TopicInfo, check_name, load_topic, store_topic

__all__ = ["Log"]


class _Marker(msgspec.Struct, frozen=True):
    """The content of the file that says: this is a log. The envelope has the format."""


class Log:
    """The topics and the groups in one directory. Several processes may each open it at the same time.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater.state.log import Log
    >>> with TemporaryDirectory() as folder, Log.open(folder) as log:
    ...     _ = log.create_topic("orders", 2)
    ...     print([(topic.name, topic.partitions) for topic in log.topics()])
    [('orders', 2)]
    """

    def __init__(self, directory: Path, files: Files) -> None:
        self.directory, self.files = directory, files
        self.groups_directory = directory / "groups"
        self._topics = directory / "topics"
        self._partitions: WeakSet[Partition] = WeakSet()

    @classmethod
    def open(cls, directory: str | PathLike[str], files: Files = REAL_FILES) -> "Log":
        """Return the log in the directory, which is made if it is not there."""
        path = Path(directory).absolute()
        log = cls(path, files)
        with storing("open a log", path):
            try:
                documents.load(files, path / "log", "log", _Marker)
            except FileNotFoundError:
                files.make_directory(log._topics)
                files.make_directory(log.groups_directory)
                with log._changing():
                    documents.store(files, path / "log", "log", _Marker())
                files.sync_directory(path.parent)
        return log

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the partitions that were opened through this object. Groups are closed by whoever opened them."""
        for partition in list(self._partitions):
            partition.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Be the only one who makes, changes or deletes topics."""
        fd = self.files.create(self.directory / "topics.lock", empty=False)
        try:
            self.files.lock(fd)
            yield
        finally:
            self.files.close(fd)

    def topics(self) -> list[TopicInfo]:
        """Return all topics, by name."""
        found = []
        for name in self.files.names(self._topics):
            if "~" not in name:
                try:
                    found.append(load_topic(self.files, self._topics / name))
                except FileNotFoundError:
                    self._check_whole(name)
                    # Deleted since the names were read.
                    continue
        return found

    def _check_whole(self, name: str) -> None:
        """Raise CorruptLog if there is a topic's directory without the file that says what the topic is."""
        directory = self._topics / name
        if directory.is_dir() and not (directory / TOPIC_NAME).exists():
            raise CorruptLog(
                f"The topic {name!r} is damaged: there is no file {directory / TOPIC_NAME}. Restore the file from a "
                f"copy, or have it made anew: headwater log repair {name} shows how."
            )

    def topic(self, name: str) -> TopicInfo:
        """Return what the topic is; UnknownTopic if there is none."""
        check_name(name)
        try:
            return load_topic(self.files, self._topics / name)
        except FileNotFoundError:
            self._check_whole(name)
            raise UnknownTopic(
                f"There is no topic {name!r} in {self.directory}: create it "
                f"(headwater topics create {name}), or correct the name."
            ) from None

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        compact: bool = False,
        delete: bool = True,
        retention_ms: int | None = 7 * DAY_MS,
        retention_bytes: int | None = None,
        segment_bytes: int = 64 << 20,
        segment_ms: int = 7 * DAY_MS,
        compression: str = "lz4",
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Make a topic and return what it is; with `exist_ok` one that is there already is returned as it is."""
        check_name(name)
        info = TopicInfo(
            name, uuid.uuid4().hex, partitions, compact, delete, retention_ms, retention_bytes, segment_bytes,
            segment_ms, compression,
        )  # fmt: skip
        info.check()
        if exist_ok:
            try:
                return self.topic(name)
            except UnknownTopic:
                pass
        with storing(f"create the topic {name!r}", self.directory), self._changing():
            self._remove_leftovers()
            try:
                there = load_topic(self.files, self._topics / name)
            except FileNotFoundError:
                self._check_whole(name)
                self._make(info)
                return info
        if exist_ok:
            return there
        raise TopicExists(f"There is a topic {name!r} already in {self.directory}: take another name.")

    def _make(self, info: TopicInfo) -> None:
        files, fresh = self.files, self._topics / f"{info.name}~new"
        for number in range(info.partitions):
            make_partition(files, fresh / str(number), info.id)
        store_topic(files, fresh, info)
        files.replace(fresh, self._topics / info.name)
        files.sync_directory(self._topics)

    def alter_topic(self, name: str, /, **changes: object) -> TopicInfo:
        """Change settings of a topic and return what it is then; the number of partitions may only grow."""
        with storing(f"alter the topic {name!r}", self.directory), self._changing():
            self._remove_leftovers()
            info = self.topic(name)
            allowed = set(TopicInfo.__struct_fields__) - {"name", "id"}
            if unknown := sorted(set(changes) - allowed):
                raise StreamsError(f"A topic has no setting {', '.join(unknown)}: it has {', '.join(sorted(allowed))}.")
            try:
                new = msgspec.convert(msgspec.to_builtins(info) | changes, TopicInfo)
            except msgspec.ValidationError as error:
                raise StreamsError(f"The topic {name!r} cannot be altered so: {error}.") from error
            new.check()
            if new.partitions < info.partitions:
                raise StreamsError(
                    f"The topic {name!r} has {info.partitions} partitions and cannot have {new.partitions}: "
                    "they may only grow. Create another topic and copy the records."
                )
            for number in range(info.partitions, new.partitions):
                make_partition(self.files, self._topics / name / str(number), info.id)
            self.files.sync_directory(self._topics / name)
            store_topic(self.files, self._topics / name, new)
            for number in range(info.partitions):
                with self.partition(name, number) as partition:
                    partition.announce()
        return new

    def delete_topic(self, name: str) -> None:
        """Delete the topic, its records and what was committed for it; whoever has it open gets UnknownTopic."""
        with storing(f"delete the topic {name!r}", self.directory), self._changing():
            info = self.topic(name)
            gone = self._topics / f"{name}~{info.id}"
            partitions = []
            try:
                for number in range(info.partitions):
                    # A damaged one goes too; nobody can append to it, or has to be told that it is gone.
                    with suppress(CorruptLog):
                        partitions.append(self.partition(name, number))
                        partitions[-1].retire()
                self.files.replace(self._topics / name, gone)
            finally:
                for partition in partitions:
                    partition.close()
            self.files.sync_directory(self._topics)
            for group in self.groups():
                self.group(group).forget(name)
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        for name in self.files.names(self._topics):
            if "~" in name:
                self._remove(self._topics / name)

    def _remove(self, directory: Path) -> None:
        for name in self.files.names(directory):
            if (directory / name).is_dir():
                self._remove(directory / name)
            else:
                self.files.remove(directory / name)
        self.files.remove_directory(directory)

    def repair_topic(
        self, name: str, partitions: Iterable[int] | None = None, *, execute: bool = False
    ) -> TopicRepair:
        """Return what is damaged in a topic and what making it whole gives up; with `execute`, make it whole."""
        check_name(name)
        directory = self._topics / name
        if not directory.is_dir():
            raise UnknownTopic(f"There is no topic {name!r} in {self.directory}: correct the name.")
        committed: dict[int, int] = {}
        for group in self.groups():
            # A damaged group has to be seen to on its own.
            with suppress(CorruptLog):
                for (topic, number), at in self.group(group).committed().items():
                    if topic == name:
                        committed[number] = max(at, committed.get(number, 0))
        with self._changing():
            return repair_topic(self.files, directory, committed, partitions, execute=execute)

    def partition(self, topic: str, number: int) -> Partition:
        """Open a partition, which the caller closes, or the log; UnknownTopic if there is none."""
        info = self.topic(topic)
        if not 0 <= number < info.partitions:
            raise UnknownTopic(
                f"The topic {topic!r} has the partitions 0 to {info.partitions - 1} and no {number}: "
                "correct the number, or add partitions (headwater topics alter)."
            )
        partition = Partition(self._topics / topic / str(number), topic, number, self.files)
        self._partitions.add(partition)
        return partition

    def groups(self) -> list[str]:
        """Return the names of the groups that have committed or had members."""
        return group_names(self.files, self.groups_directory)

    def group(self, name: str) -> Group:
        """Return a group's offsets and members; it is made when something is committed or someone joins."""
        return Group(self, name)

    def maintain(self, now: int | None = None) -> None:
        """Delete and compact what the topics' settings say, in every partition that nobody else is cleaning.

        By the real clock (no `now`), records are kept for the retention since they were written, or since their
        timestamp if that is later.
        """
        moment = int(time.time() * 1000) if now is None else now
        fault: StreamsError | None = None
        for info in self.topics():
            for number in range(info.partitions):
                try:
                    with self.partition(info.name, number) as partition:
                        partition.maintain(moment, by_writing=now is None)
                except UnknownTopic:
                    # Deleted since the topics were listed.
                    break
                except CorruptLog as damage:
                    # The others are seen to first.
                    fault = fault or damage
        if fault is not None:
            raise fault
