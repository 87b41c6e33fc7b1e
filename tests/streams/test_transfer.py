"""Topics moved between brokers and files: every part of every record arrives, in its partition and its order."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Admin, Consumer, Producer, StreamsError
from headwater.streams.consumer import ConsumerRecord
from headwater.streams.parquet import ParquetReader, ParquetWriter
from headwater.streams.transfer import BrokerTarget, Moved, move, open_source, open_target
from tests.brokers import BOTH, empty_broker

MAYBE = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
RECORDS = st.lists(
    st.builds(
        ConsumerRecord,
        topic=st.sampled_from(["orders", "payments", "a.b_c-d"]),
        partition=st.integers(0, 2**31 - 1),
        offset=st.integers(0, 2**63 - 1),
        key=MAYBE,
        value=MAYBE,
        timestamp=st.integers(0, 2**63 - 1),
        headers=st.lists(st.tuples(st.text(max_size=5), MAYBE), max_size=3).map(tuple),
    ),
    max_size=30,
)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from empty_broker(request, tmp_path / "log")


class Given:
    """Records as a source."""

    in_bytes, total = False, 0

    def __init__(self, records: list[ConsumerRecord]) -> None:
        self._records = records

    def partitions(self, topic: str) -> int | None:
        return None

    def settings(self, topic: str) -> dict[str, object]:
        return {}

    def batches(self) -> Iterator[tuple[int, list[ConsumerRecord]]]:
        yield 0, self._records


def written(path: Path, records: list[ConsumerRecord]) -> Path:
    path.unlink(missing_ok=True)
    source = Given(records)
    with open_target(str(path), source) as target:
        move(source, target)
    return path


def read(path: Path, *topics: str) -> list[ConsumerRecord]:
    with open_source(str(path), topics) as source:
        return [record for _, records in source.batches() for record in records]


@pytest.mark.parametrize("name", ["records.jsonl", "records.parquet"])
@settings(max_examples=60)
@given(records=RECORDS)
def test_files_give_back_what_they_were_given(
    tmp_path_factory: pytest.TempPathFactory, name: str, records: list[ConsumerRecord]
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    assert read(written(path, records)) == records


def fill(broker: str, topic: str, count: int) -> None:
    """Records of every kind over all partitions."""
    with Producer(broker) as producer:
        for number in range(count):
            producer.send(
                topic,
                key=[None, b"", b"\xff\x00", "ключ"][number % 4],
                value=None if number % 5 == 4 and number % 4 else f"{number}",
                timestamp=1 + number,
                headers=[("n", str(number)), ("nothing", None), ("bytes", b"\xff")][: number % 4],
            )


def content(broker: str, topic: str) -> list[tuple[object, ...]]:
    """All but offsets, which are each broker's own, partition by partition."""
    with Consumer(broker, topic) as consumer:
        found: list[ConsumerRecord] = []
        while records := consumer.poll():
            found += records
    found.sort(key=lambda one: (one.partition, one.offset))
    return [(one.partition, one.key, one.value, one.timestamp, one.headers) for one in found]


def moved(source_place: str, target_place: str, *topics: str, **options: object) -> tuple[Moved, bool]:
    with open_source(source_place, topics) as source, open_target(target_place, source, **options) as target:  # type: ignore[arg-type]
        done = move(source, target)
    return done, isinstance(target, BrokerTarget) and target.renumbered


@BOTH
def test_a_topic_goes_out_and_comes_back(broker: str, tmp_path: Path) -> None:
    admin = Admin(broker)
    admin.create_topic("orders", 3, compact=False)
    fill(broker, "orders", 300)
    there = content(broker, "orders")
    for file in ("orders.jsonl", "orders.parquet"):
        place = str(tmp_path / file)
        done, _ = moved(broker, place, "orders")
        assert done.records == {"orders": 300}
        assert [(one.partition, one.offset) for one in sorted(read(tmp_path / file), key=lambda r: r.partition)] == [
            (partition, offset)
            for partition in range(3)
            for offset in range(admin.describe("orders").partitions[partition].end)
        ]
        back, renumbered = moved(place, broker, f"back-{file}")
        assert (back.records, renumbered) == ({f"back-{file}": 300}, False)
        assert content(broker, f"back-{file}") == there
        _, renumbered = moved(place, broker, f"back-{file}")
        assert renumbered
        assert admin.partitions(f"back-{file}") == 3


@BOTH
def test_brokers_hand_topics_on_with_their_settings(broker: str, tmp_path: Path) -> None:
    Admin(broker).create_topic("customers", 2, compact=True)
    with Producer(broker) as producer:
        for number in range(100):
            producer.send("customers", key=str(number), value=str(number), timestamp=1 + number)
    other = f"log://{tmp_path}/other"
    moved(broker, other, "customers")
    assert content(other, "customers") == content(broker, "customers")
    info = Admin(other).describe("customers").info
    assert (info.partitions, info.compact, info.delete) == (2, True, False)
    # And back, to where it is from.
    Admin(broker).delete_topic("customers")
    moved(other, broker, "customers")
    assert content(broker, "customers") == content(other, "customers")


@BOTH
def test_only_from_a_time_on_and_only_what_was_there(broker: str, tmp_path: Path) -> None:
    from datetime import UTC, datetime

    Admin(broker).create_topic("orders", 2)
    fill(broker, "orders", 100)
    since = datetime.fromtimestamp(0.051, UTC)
    with open_source(broker, ["orders"], since) as source:
        assert source.total == sum(1 for at in content(broker, "orders") if int(str(at[3])) >= 51)
        # What is written while it is read would never end.
        fill(broker, "orders", 10)
        found = [record.timestamp for _, records in source.batches() for record in records]
    assert sorted(found) == list(range(51, 101))


def test_keys_decide_anew(broker: str, tmp_path: Path) -> None:
    Admin(broker).create_topic("orders", 1)
    fill(broker, "orders", 50)
    place = str(tmp_path / "orders.jsonl")
    moved(broker, place, "orders")
    moved(place, broker, "wide", partitions=4, by_key=True)
    assert Admin(broker).partitions("wide") == 4
    assert {at[0] for at in content(broker, "wide")} == {0, 1, 2, 3}
    with pytest.raises(StreamsError, match=r"wide has 4 partitions in log://.*, and 9 where .*--by-key"):
        moved(place, broker, "wide", partitions=9)


def test_a_file_of_others(tmp_path: Path, broker: str) -> None:
    (tmp_path / "plain.jsonl").write_text('{"value": "a"}\n\n{"key": 5, "value": {"b": 1}}\n')
    moved(str(tmp_path / "plain.jsonl"), broker, "orders")
    assert sorted(str(at[2]) for at in content(broker, "orders")) == ["b'a'", "b'{\"b\":1}'"]
    import pyarrow
    import pyarrow.parquet

    columns = {"key": ["x", None], "value": ["1", "2"], "timestamp": [5, 6]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "plain.parquet")
    moved(str(tmp_path / "plain.parquet"), broker, "others")
    assert [at[1:4] for at in content(broker, "others")] == [(b"x", b"1", 5), (None, b"2", 6)]


@pytest.mark.parametrize(
    ("source", "target", "topics", "told"),
    [
        ("none.jsonl", "log://x", (), "There is no file none.jsonl"),
        ("there.txt", "log://x", (), "told by its name: write a file that ends in .jsonl or .parquet"),
        ("there.jsonl", "there.jsonl", ("a",), "is there already: name another file, or say --replace"),
        ("there.jsonl", "log://x", (), "there.jsonl:1: the record names no topic"),
        ("there.jsonl", "log://x", ("a", "b"), "name one at most"),
        ("broken.jsonl", "log://x", ("a",), "broken.jsonl:2: the line is no JSON object"),
        ("broken.parquet", "log://x", ("a",), "broken.parquet cannot be read as Parquet"),
        ("wrong.parquet", "log://x", ("a",), "has no column value, only other"),
        ("typed.parquet", "log://x", ("a",), "the column value is int64, and must be binary"),
        ("topicless.parquet", "log://x", (), "has no column topic: name the topic"),
        ("log://nowhere", "new.jsonl", ("a",), "There is no log in"),
        ("log://nowhere", "new.jsonl", (), "Name the topics of log://nowhere"),
    ],
)
def test_what_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, topics: tuple[str, ...], told: str
) -> None:
    import pyarrow
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)
    Path("there.txt").touch()
    Path("there.jsonl").write_text('{"value": 1}\n')
    Path("broken.jsonl").write_text('{"value": 1}\n{"value": \n')
    Path("broken.parquet").write_text("nothing")
    pyarrow.parquet.write_table(pyarrow.table({"other": [1]}), "wrong.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"value": [1], "topic": ["a"]}), "typed.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"value": ["1"]}), "topicless.parquet")
    with pytest.raises(StreamsError) as raised:
        moved(source, target, *topics)
    assert told in str(raised.value)
    assert not Path("new.jsonl").exists()
    assert not list(tmp_path.glob("*.part"))


def test_a_file_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    record = ConsumerRecord("orders", 0, 0, None, b"x", 1, ())

    class Failing(Given):
        def batches(self) -> Iterator[tuple[int, list[ConsumerRecord]]]:
            yield 0, [record]
            assert list(tmp_path.iterdir()) == [tmp_path / "orders.parquet.part"]
            raise StreamsError("the broker is away")

    source = Failing([])
    with pytest.raises(StreamsError, match="away"), open_target(str(path), source) as target:
        move(source, target)
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for make in (ParquetWriter, lambda path: ParquetReader(path, "a")):
        with pytest.raises(StreamsError, match=r"run pip install 'headwater\[parquet\]'"):
            make(tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_json_lines_are_those_that_consume_prints(tmp_path: Path) -> None:
    record = ConsumerRecord("orders", 1, 2, b"\xff", b"tea", 3, (("a", None),))
    (line,) = written(tmp_path / "a.jsonl", [record]).read_text().splitlines()
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key_base64": "/w==",
        "value": "tea",
        "headers": [{"name": "a", "value": None}],
    }
