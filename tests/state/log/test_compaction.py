"""What retention, deletion and compaction leave, compared with a plain list of records; and that producers' sequences
survive them and any death."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.errors import StreamsError
from headwater.state.log import Log, Partition, Record, Segment
from headwater.state.log import compaction as module
from headwater.state.log.topics import DAY_MS
from tests.state.log.helpers import FAST, make, numbered, open_again, read_all
from tests.state.log.layers import Faulty, Killed

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
VALUES = st.none() | st.binary(max_size=30)


class Cleaning(RuleBasedStateMachine):
    """One partition beside a list of what should be in its files."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.now = 1_000_000
        self.records: list[Record] = []
        self.horizons: dict[int, int] = {}
        self.start = self.end = 0

    @initialize(segment_bytes=st.sampled_from([150, 400, 2_000]), compact=st.booleans(), retention=st.booleans())
    def create(self, segment_bytes: int, compact: bool, retention: bool) -> None:
        self.retention_ms = 500_000 if retention else None
        self.retention_bytes = 1_200 if retention else None
        self.compact_topic = compact
        self.partition = make(
            Path(self.folder.name),
            segment_bytes=segment_bytes,
            compact=compact,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
        )
        self.reader = open_again(Path(self.folder.name))

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.partition.close()
            self.reader.close()
        self.folder.cleanup()

    @rule(records=st.lists(st.tuples(KEYS, VALUES, st.integers(0, 100_000)), min_size=1, max_size=5))
    def append(self, records: list[tuple[bytes, bytes | None, int]]) -> None:
        new = [(key, value, self.now - age, ()) for key, value, age in records]
        assert self.partition.append(new) == (self.end, self.end + len(new) - 1)
        self.records += [(*record, self.end + number) for number, record in enumerate(new)]
        self.end += len(new)

    @rule(amount=st.sampled_from([1_000, 200_000, DAY_MS]))
    def pass_time(self, amount: int) -> None:
        self.now += amount

    @rule()
    def open_again(self) -> None:
        self.partition.close()
        self.partition = open_again(Path(self.folder.name))

    @rule(share=st.floats(0, 1))
    def delete_before(self, share: float) -> None:
        offset = self.start + int(share * (self.end - self.start))
        self.partition.delete_before(offset)
        self.start = max(self.start, offset)
        self._forget()

    @rule()
    def apply_retention(self) -> None:
        before = self.partition.segments()
        self.partition.apply_retention(self.now)
        gone, size = 0, sum(segment.size for segment in before)
        for segment in before:
            inside = self._inside(segment)
            last = segment.end is None
            old = self.retention_ms is not None and all(r[2] < self.now - self.retention_ms for r in inside)
            large = self.retention_bytes is not None and size - segment.size >= self.retention_bytes
            if not old and (last or not large):
                break
            if last and not inside:
                break
            size -= segment.size
            gone += 1
        if gone:
            self.start = max(self.start, before[gone].base if gone < len(before) else self.end)
            self._forget()

    def _inside(self, segment: Segment) -> list[Record]:
        end = self.end if segment.end is None else segment.end
        return [record for record in self.records if segment.base <= record[4] < end]

    def _forget(self) -> None:
        first = self.partition.segments()[0].base
        # A segment of which a part is below the start keeps that part, which decides how old it is.
        self.records = [record for record in self.records if record[4] >= min(first, self.start)]

    @rule()
    def compact(self) -> None:
        closed = self.partition.segments()[-1].base
        assert self.partition.compact(self.now)
        last = {record[0]: record[4] for record in self.records if record[4] < closed}
        kept = []
        for record in self.records:
            offset = record[4]
            if offset < closed:
                if last[record[0]] != offset:
                    continue
                if record[1] is None:
                    horizon = self.horizons.setdefault(offset, self.now + DAY_MS)
                    if self.now >= horizon and offset != closed - 1:
                        continue
            kept.append(record)
        self.records = kept

    @invariant()
    def all_is_there(self) -> None:
        if not hasattr(self, "partition"):
            return
        visible = [record for record in self.records if record[4] >= self.start]
        for opening in (self.partition, self.reader):
            assert (opening.start, opening.end) == (self.start, self.end)
            assert read_all(opening) == visible
            assert read_all(opening, max_records=2) == visible
            # Whoever has read the last record is at the end.
            assert not visible or visible[-1][4] == self.end - 1 or self.start == self.end
        for time in (0, self.now - 50_000, self.now):
            expected = next((record[4] for record in visible if record[2] >= time), self.end)
            assert self.reader.offset_at(time) == expected
        assert self.partition.verify() == []


TestCleaning = Cleaning.TestCase
TestCleaning.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class Sequences(RuleBasedStateMachine):
    """Two producers who die at any operation and repeat what they are not sure of."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.next = {"a": 0, "b": 0}
        self.sent: list[bytes] = []
        self.deleted = 0
        make(self.path, segment_bytes=300).close()

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(producer=st.sampled_from(["a", "b"]), count=st.integers(1, 3), death=st.none() | st.integers(0, 12))
    def send(self, producer: str, count: int, death: int | None) -> None:
        sequence = self.next[producer]
        # No key comes twice: compaction rewrites segments and takes nothing out.
        records = [(b"%s.%d.%d" % (producer.encode(), sequence, number), b"v", 1, ()) for number in range(count)]
        if death is not None:
            with open_again(self.path, Faulty(death, None)) as partition, suppress(Killed):
                partition.append(records, producer=producer, sequence=sequence)
        with open_again(self.path) as partition:
            partition.append(records, producer=producer, sequence=sequence)
            assert partition.append(records, producer=producer, sequence=sequence) is None
        self.next[producer] += 1
        self.sent += [record[0] for record in records]

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        with open_again(self.path) as partition:
            self.deleted = max(self.deleted, int(share * partition.end))
            partition.delete_before(self.deleted)

    @rule(death=st.none() | st.integers(0, 40))
    def clean(self, death: int | None) -> None:
        with open_again(self.path, Faulty(death, None)) as partition, suppress(Killed):
            partition.compact(1)

    @invariant()
    def each_is_there_once(self) -> None:
        with open_again(self.path) as partition:
            assert (partition.start, partition.end) == (self.deleted, len(self.sent))
            assert [record[0] for record in read_all(partition)] == self.sent[self.deleted :]
            for producer, following in self.next.items():
                assert partition.last_sequence(producer) == (following - 1 if following else None)


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def fill(folder: Path, rounds: int = 50, **settings: object) -> Partition:
    partition = make(folder, compact=True, segment_bytes=500, **settings)
    for number in range(rounds):
        partition.append([(b"k%d" % (number % 3), b"%d" % number, number, ())])
    return partition


def test_compaction_merges_small_segments_and_removes_the_old_files(tmp_path: Path) -> None:
    partition = fill(tmp_path)
    before = len(partition.segments())
    assert before > 8
    partition.compact(1)
    partition.compact(1)
    assert len(partition.segments()) <= 3
    logs = {path.name for path in partition.directory.glob("*.log")}
    assert logs == {segment.name for segment in partition.segments()}
    active = partition.segments()[-1].base
    assert [record[4] for record in read_all(partition)] == list(range(active - 3, 50))


def test_many_keys_are_compacted_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KEYS", 5)
    partition = make(tmp_path, compact=True, segment_bytes=500)
    for number in range(200):
        partition.append([(b"k%d" % (number % 20), b"%d" % number, number, ())])
    partition.compact(1)
    active = partition.segments()[-1].base
    assert [record[4] for record in read_all(partition)] == list(range(active - 20, 200))


def test_a_reader_in_an_old_file_goes_on_there(tmp_path: Path) -> None:
    partition, reader = fill(tmp_path), open_again(tmp_path)
    first = reader.read(0, max_records=1)
    assert first[0][4] == 0
    partition.compact(1)
    found, offset = [], 1
    while records := reader.read(offset, max_records=1):
        found += records
        offset = records[-1][4] + 1
    offsets = [record[4] for record in found]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 49


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(tmp_path: Path) -> None:
    partition = fill(tmp_path)
    with pytest.raises(StreamsError, match="compacted by key: a record without a key"):
        partition.append([(None, b"v", 1, ())])


def test_a_record_without_a_key_from_before_is_kept(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_bytes=150)
    for number in range(6):
        partition.append([(None, b"%d" % number, 1, ()), (b"k", b"%d" % number, 1, ())])
    Log.open(tmp_path, FAST).alter_topic("t", compact=True)
    partition.compact(1)
    active = partition.segments()[-1].base
    kept = [record[4] for record in read_all(partition) if record[4] < active]
    assert kept == [*range(0, active, 2), active - 1]


def test_maintenance_compacts_when_it_is_worth_it(tmp_path: Path) -> None:
    partition = fill(tmp_path, retention_ms=None, segment_ms=10**12)
    log = Log.open(tmp_path, FAST)
    log.maintain(now=100)
    compacted = partition.segments()
    assert len(compacted) < 5
    log.maintain(now=101)
    assert partition.segments() == compacted
    # Nobody appends: the active segment is closed for its age, and compacted too.
    log.maintain(now=10**12 + 1_000)
    assert [record[4] for record in read_all(partition)] == [47, 48, 49]


def test_two_do_not_compact_at_once(tmp_path: Path) -> None:
    partition = fill(tmp_path)
    fd = FAST.create(partition.directory / "compact.lock", empty=False)
    FAST.lock(fd)
    assert partition.compact(1) is False
    FAST.close(fd)
    assert partition.compact(1) is True


def test_segments_deleted_during_a_compaction_stay_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = fill(tmp_path)
    publish = module._publish

    def late(chain: object, written: object, cleaned: int) -> None:
        with open_again(tmp_path) as other:
            other.delete_before(30)
        publish(chain, written, cleaned)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_publish", late)
    partition.compact(1)
    monkeypatch.undo()
    assert partition.start == 30
    partition.compact(1)
    assert partition.verify() == []
    assert {path.name for path in partition.directory.glob("*.log")} == {s.name for s in partition.segments()}
    assert read_all(partition)[-1][4] == 49


def test_a_delete_beyond_the_end_is_refused(tmp_path: Path) -> None:
    partition = make(tmp_path)
    partition.append(numbered(0, 3))
    with pytest.raises(StreamsError, match="t-0 ends at 3"):
        partition.delete_before(4)
    partition.delete_before(3)
    assert (partition.start, partition.end, partition.read(3)) == (3, 3, [])
    assert partition.append(numbered(3)) == (3, 3)
