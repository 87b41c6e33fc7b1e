"""Appending and reading a partition, in one process."""

import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StreamsError
from headwater.state.log import OutOfRange, Partition
from headwater.state.log.segment import Tail
from tests.state.log.helpers import make, numbered, open_again, read_all
from tests.state.log.layers import Unsynced


def test_records_come_out_as_they_went_in(tmp_path: Path) -> None:
    partition = make(tmp_path)
    headers = (("a", b"x"), ("a", None), ("ü", b""))
    records = [(b"k", b"v", 5, headers), (None, None, -1, ()), (b"", b"", 2**62, ())]
    assert partition.append(records) == (0, 2)
    assert partition.append(records[:1], sync=True) == (3, 3)
    expected = [(*record, offset) for offset, record in enumerate([*records, records[0]])]
    assert partition.read(0) == expected
    assert (partition.start, partition.end) == (0, 4)
    partition.close()
    with open_again(tmp_path) as partition:
        assert partition.read(0) == expected
        assert partition.read(2) == expected[2:]
        assert partition.read(4) == []


@pytest.mark.parametrize("limits", [{}, {"max_records": 1}, {"max_records": 7}, {"max_bytes": 1}, {"max_bytes": 900}])
@pytest.mark.parametrize("segment_bytes", [1, 1_000, 1 << 20])
def test_all_is_read_whatever_the_limits(tmp_path: Path, segment_bytes: int, limits: dict[str, int]) -> None:
    partition = make(tmp_path, segment_bytes=segment_bytes)
    offset = 0
    for count in [1, 5, 3, 20, 1, 1, 50, 2]:
        assert partition.append(numbered(offset, count)) == (offset, offset + count - 1)
        offset += count
    expected = [(*record, offset) for offset, record in enumerate(numbered(0, 83))]
    assert read_all(partition, **limits) == expected
    assert read_all(open_again(tmp_path), **limits) == expected
    for first in range(84):
        for most in (100, 3):
            records = partition.read(first, most)
            assert records == expected[first : first + len(records)]
            assert (first < 83) <= len(records) <= most


def test_a_reader_sees_what_another_opening_appends(tmp_path: Path) -> None:
    writer, reader, other = make(tmp_path, segment_bytes=500), open_again(tmp_path), open_again(tmp_path)
    for number in range(100):
        assert (other if number % 3 == 0 else writer).append(numbered(number)) == (number, number)
        assert reader.end == number + 1
        assert reader.read(number) == [(*numbered(number)[0], number)]
        assert reader.read(number + 1) == []
    assert len(reader.segments()) > 10


def test_an_offset_outside_is_refused_with_the_bounds(tmp_path: Path) -> None:
    partition = make(tmp_path)
    partition.append(numbered(0, 10))
    partition.delete_before(4)
    for offset in (-1, 3, 11):
        with pytest.raises(OutOfRange) as caught:
            partition.read(offset)
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.start, error.end, error.offset) == (4, 10, offset)
        assert "t-0 has no offset" in str(error)
    assert [record[4] for record in partition.read(4)] == list(range(4, 10))


class Meanwhile(Unsynced):
    """Files in which something happens just before a segment is opened."""

    def __init__(self) -> None:
        self.happens: Callable[[], object] | None = None

    def open(self, path: Path, *, write: bool = False) -> int:
        happens = self.happens
        if happens and path.suffix == ".log":
            self.happens = None
            happens()
        return super().open(path, write=write)


def test_a_segment_that_is_deleted_before_it_is_opened_is_not_skipped(tmp_path: Path) -> None:
    writer = make(tmp_path, segment_bytes=300)
    for number in range(30):
        writer.append(numbered(number))
    files = Meanwhile()
    reader = open_again(tmp_path, files)
    files.happens = lambda: writer.delete_before(20)
    with pytest.raises(OutOfRange) as caught:
        reader.read(5)
    assert (caught.value.start, caught.value.end) == (20, 30)
    assert [record[4] for record in read_all(reader)] == list(range(20, 30))


def test_a_segment_that_is_compacted_before_it_is_opened_is_read_anew(tmp_path: Path) -> None:
    writer = make(tmp_path, segment_bytes=300, compact=True)
    for number in range(30):
        writer.append([(b"k", b"%d" % number, 1, ())])
    files = Meanwhile()
    reader = open_again(tmp_path, files)
    files.happens = lambda: writer.compact(1)
    last = writer.segments()[-1].base
    assert [record[4] for record in reader.read(0)] == list(range(last - 1, 30))


@pytest.mark.parametrize("first", [28, 29])
def test_an_active_segment_that_is_closed_while_it_is_looked_up_is_read(tmp_path: Path, first: int) -> None:
    writer = make(tmp_path)
    for number in range(30):
        writer.append(numbered(number))
    reader = open_again(tmp_path)
    follow = reader._chain.follow

    def late() -> Tail:
        reader._chain.follow = follow  # type: ignore[method-assign]
        with writer._chain.changing("roll"):
            writer._chain.roll()
        writer.append(numbered(30))
        return follow()

    reader._chain.follow = late  # type: ignore[method-assign]
    assert [record[4] for record in reader.read(first)] == list(range(first, 31))


def test_a_batch_is_appended_once_per_producer_and_sequence(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_bytes=300)
    assert partition.last_sequence("a") is None
    for number in range(20):
        assert partition.append(numbered(number), producer="a", sequence=number * 2) == (number, number)
        assert open_again(tmp_path).append(numbered(99), producer="a", sequence=number * 2) is None
    assert partition.append(numbered(20), producer="b", sequence=0) == (20, 20)
    partition.delete_before(21)
    assert len(partition.segments()) == 1
    for opening in (partition, open_again(tmp_path)):
        assert (opening.last_sequence("a"), opening.last_sequence("b"), opening.last_sequence("c")) == (38, 0, None)
        assert opening.append(numbered(0), producer="a", sequence=38) is None
        assert opening.append(numbered(0), producer="a", sequence=5) is None
    assert read_all(partition) == []


@pytest.mark.parametrize("wrong", [{"producer": "a"}, {"sequence": 1}, {"producer": "", "sequence": 1},
                                   {"producer": "a", "sequence": -1}])  # fmt: skip
def test_a_producer_needs_a_name_and_a_sequence(tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(StreamsError, match="needs a name and a sequence number"):
        make(tmp_path).append(numbered(0), **wrong)


def test_a_batch_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    partition = make(tmp_path)
    with pytest.raises(StreamsError, match="Record 0"):
        partition.append([("text", b"v", 1, ())])  # type: ignore[list-item]
    assert (partition.end, partition.size_bytes) == (0, 0)


def test_a_segment_ends_by_size_and_by_time(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_ms=1_000)
    for time in (0, 500, 1_000, 1_001, 2_001, 2_002):
        partition.append([(b"k", b"v", time, ())])
    assert [(segment.base, segment.end) for segment in partition.segments()] == [(0, 3), (3, 5), (5, None)]
    assert partition.size_bytes == sum(batch.size for batch in partition.dump())


def test_the_dump_says_what_the_headers_say(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_bytes=200)
    partition.append(numbered(0, 2), producer="p", sequence=7)
    partition.append(numbered(2, 1))
    first, second = partition.dump()
    assert (first.position, first.base, first.last, first.count) == (0, 0, 1, 2)
    assert (first.producer, first.sequence, first.horizon, first.compression) == ("p", 7, None, "none")
    assert (first.min_timestamp, first.max_timestamp) == (1_000, 1_001)
    assert (second.producer, second.sequence, second.base) == (None, None, 2)
    assert partition.verify() == []


def test_a_closed_partition_says_so(tmp_path: Path) -> None:
    partition = make(tmp_path)
    partition.close()
    partition.close()
    for action in (lambda: partition.read(0), lambda: partition.append(numbered(0)), lambda: partition.end):
        with pytest.raises(StreamsError, match="t-0 is closed"):
            action()


def test_threads_may_share_an_opening(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_bytes=5_000)

    def run(name: str) -> None:
        for number in range(200):
            partition.append([(name.encode(), b"%d" % number, number, ())], producer=name, sequence=number)
            partition.read(partition.start, max_records=5)

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = read_all(partition)
    assert [record[4] for record in records] == list(range(600))
    for name in (b"a", b"b", b"c"):
        assert [int(record[1]) for record in records if record[0] == name] == list(range(200))


def first_at_or_after(records: list, timestamp: int, end: int) -> int:
    return next((record[4] for record in records if record[2] >= timestamp), end)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=25),
    st.integers(0, 20),
    st.sampled_from([1, 300, 1 << 20]),
)
def test_offset_at_finds_the_first_record_of_a_time(tmp_path_factory, batches, deleted, segment_bytes) -> None:
    partition: Partition = make(tmp_path_factory.mktemp("log"), segment_bytes=segment_bytes)
    for times in batches:
        partition.append([(b"k", b"v", time, ()) for time in times])
    partition.delete_before(min(deleted, partition.end))
    records = read_all(partition)
    for time in range(-1, 62):
        assert partition.offset_at(time) == first_at_or_after(records, time, partition.end)
    partition.close()


def test_offset_at_uses_the_index_of_large_segments(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_bytes=500_000, compression="none")
    # Rising with a dip in each hundred, so that batches overlap in time.
    times = [number - (number % 100 == 50) * 30 for number in range(1_000)]
    for time in times:
        partition.append([(b"k", b"x" * 1_000, time, ())])
    assert len(partition.segments()) > 1
    records = read_all(partition)
    for opening in (partition, open_again(tmp_path)):
        for time in range(0, 1_001, 7):
            assert opening.offset_at(time) == first_at_or_after(records, time, 1_000)


def test_a_batch_of_several_producers_counts_for_each_of_them(tmp_path: Path) -> None:
    partition = make(tmp_path)
    assert partition.append_merged(numbered(0, 4), {"a": 3, "b": 7}) == (0, 3)
    for opening in (partition, open_again(tmp_path)):
        assert (opening.last_sequence("a"), opening.last_sequence("b")) == (3, 7)
        assert opening.append(numbered(9), producer="a", sequence=3) is None
        assert opening.append(numbered(9), producer="b", sequence=7) is None
        # One of them is there: whose records these are only the caller knows.
        assert opening.append_merged(numbered(9, 2), {"a": 4, "b": 7}) is None
    assert partition.append(numbered(4), producer="a", sequence=4) == (4, 4)
    assert open_again(tmp_path).append_merged(numbered(5), {"b": 8}) == (5, 5)
    (first, second, third) = partition.dump()
    assert (first.producer, first.sequence, first.count) == ("a #3, b #7", None, 4)
    assert (second.producer, second.sequence) == ("a", 4)
    assert (third.producer, third.sequence) == ("b", 8)


def test_more_producers_than_a_batch_can_name_are_left_to_the_caller(tmp_path: Path) -> None:
    partition = make(tmp_path)
    assert partition.append_merged(numbered(0), {f"app/{number:060}": 1 for number in range(1_100)}) is None
    assert partition.end == 0
