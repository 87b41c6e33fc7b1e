"""Topics: making, changing, listing and deleting them, also with partitions open elsewhere."""

from pathlib import Path

import pytest

from headwater.errors import StreamsError
from headwater.state.log import Log, StorageError, TopicExists, UnknownTopic
from headwater.state.log.topics import DAY_MS
from tests.state.log.helpers import FAST, numbered, read_all
from tests.state.log.layers import Faulty, Killed


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.open(tmp_path / "deep" / "log", FAST)


def test_a_topic_is_what_it_was_made(log: Log) -> None:
    info = log.create_topic("orders.v1_a-b", 3, compact=True, delete=False, retention_ms=None, compression="zstd")
    assert (info.name, info.partitions, info.compact, info.delete) == ("orders.v1_a-b", 3, True, False)
    plain = log.create_topic("plain")
    assert (plain.retention_ms, plain.retention_bytes, plain.compression) == (7 * DAY_MS, None, "lz4")
    again = Log.open(log.directory, FAST)
    assert again.topics() == [info, plain]
    assert again.topic("plain") == plain
    for number in range(3):
        assert again.partition("orders.v1_a-b", number).end == 0


def test_a_topic_is_made_once(log: Log) -> None:
    info = log.create_topic("t", 2)
    with pytest.raises(TopicExists, match="a topic 't' already"):
        log.create_topic("t", 2)
    assert log.create_topic("t", 5, exist_ok=True) == info


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a~b"])
def test_a_name_that_kafka_refuses_is_refused(log: Log, name: str) -> None:
    with pytest.raises(StreamsError, match="cannot be a topic's name"):
        log.create_topic(name)


def test_all_settings_that_are_wrong_are_named_at_once(log: Log) -> None:
    with pytest.raises(StreamsError) as caught:
        log.create_topic("t", 0, compression="gzip", retention_ms=-1, segment_bytes=0)
    for part in ("partitions=0", "compression='gzip'", "retention_ms=-1", "segment_bytes=0"):
        assert part in str(caught.value)
    assert log.topics() == []


def test_what_is_missing_is_named_with_the_remedy(log: Log) -> None:
    log.create_topic("t", 2)
    for action in (log.topic, log.delete_topic, log.alter_topic, lambda name: log.partition(name, 0)):
        with pytest.raises(UnknownTopic, match=r"no topic 'nope' in .*headwater topics create nope"):
            action("nope")
    for number in (-1, 2):
        with pytest.raises(UnknownTopic, match=f"has the partitions 0 to 1 and no {number}"):
            log.partition("t", number)


def test_settings_change_for_those_who_have_it_open(log: Log) -> None:
    log.create_topic("t", 2)
    partition, untouched = log.partition("t", 0), log.partition("t", 1)
    partition.append(numbered(0, 3))
    info = log.alter_topic("t", segment_bytes=150, partitions=4, retention_ms=None)
    assert (info.partitions, info.segment_bytes, info.retention_ms) == (4, 150, None)
    assert log.topic("t") == info
    for opening in (partition, untouched):
        for number in range(4):
            opening.append(numbered(number))
        assert len(opening.segments()) > 2
    assert log.partition("t", 3).append(numbered(0)) == (0, 0)


def test_a_change_that_is_not_possible_is_refused(log: Log) -> None:
    info = log.create_topic("t", 2)
    with pytest.raises(StreamsError, match="has 2 partitions and cannot have 1: they may only grow"):
        log.alter_topic("t", partitions=1)
    with pytest.raises(StreamsError, match="no setting colour: it has compact, compression"):
        log.alter_topic("t", colour="red")
    with pytest.raises(StreamsError, match="no setting id, name"):
        log.alter_topic("t", id="x", name="y")
    with pytest.raises(StreamsError, match="cannot be altered so"):
        log.alter_topic("t", compact="perhaps")
    with pytest.raises(StreamsError, match="compression='gzip'"):
        log.alter_topic("t", compression="gzip")
    assert log.topic("t") == info


def test_a_deleted_topic_is_gone_for_all(log: Log) -> None:
    log.create_topic("t")
    log.create_topic("other")
    opened, never_used = log.partition("t", 0), log.partition("t", 0)
    opened.append(numbered(0, 3), producer="p", sequence=1)
    log.group("g").commit({("t", 0): 2, ("other", 0): 1})
    log.delete_topic("t")
    assert [topic.name for topic in log.topics()] == ["other"]
    assert log.group("g").committed() == {("other", 0): 1}
    for partition in (opened, never_used):
        with pytest.raises(UnknownTopic, match="no partition t-0"):
            partition.read(0)
        with pytest.raises(UnknownTopic, match="no partition t-0"):
            partition.append(numbered(3))
    log.create_topic("t")
    with pytest.raises(UnknownTopic, match="deleted and made again"):
        opened.append(numbered(3))
    fresh = log.partition("t", 0)
    assert (fresh.end, fresh.last_sequence("p")) == (0, None)
    assert sorted(path.name for path in (log.directory / "topics").iterdir()) == ["other", "t"]


def test_a_death_while_topics_change_leaves_all_or_nothing(tmp_path: Path) -> None:
    def change(log: Log) -> None:
        log.create_topic("new", 2)
        log.alter_topic("old", partitions=3, segment_bytes=200)
        log.delete_topic("gone")

    def prepare(name: str) -> Log:
        log = Log.open(tmp_path / name, FAST)
        for topic in ("old", "gone"):
            log.create_topic(topic, 2)
            with log.partition(topic, 0) as partition:
                partition.append(numbered(0, 3))
        return log

    prepare("count")
    counting = Faulty()
    change(Log.open(tmp_path / "count", counting))
    for at in range(counting.count):
        log = prepare(str(at))
        with pytest.raises(Killed):
            change(Log.open(log.directory, Faulty(at, None)))
        for topic in log.topics():
            for number in range(topic.partitions):
                with log.partition(topic.name, number) as partition:
                    expected = 3 if topic.name in ("old", "gone") and number == 0 else 0
                    assert len(read_all(partition)) == expected
                    partition.append(numbered(9))
        log.create_topic("new", 2, exist_ok=True)
        log.alter_topic("old", partitions=3)
        if "gone" in [topic.name for topic in log.topics()]:
            log.delete_topic("gone")
        assert [(topic.name, topic.partitions) for topic in log.topics()] == [("new", 2), ("old", 3)]
        assert sorted(path.name for path in (log.directory / "topics").iterdir()) == ["new", "old"]


def test_a_full_disk_makes_no_half_topic(tmp_path: Path) -> None:
    log = Log.open(tmp_path, FAST)
    counting = Faulty()
    Log.open(tmp_path, counting).create_topic("count", 2)
    for at in range(counting.count):
        with pytest.raises(StorageError, match=r"Cannot create the topic 't' .* The disk is full"):
            Log.open(tmp_path, Faulty(at)).create_topic("t", 2)
        if at < counting.count - 1:
            assert [topic.name for topic in log.topics()] == ["count"]
    log.create_topic("t", 2, exist_ok=True)
    log.partition("t", 1).append(numbered(0))
