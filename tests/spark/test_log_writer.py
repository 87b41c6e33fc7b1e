"""Writing a query's batches to the embedded log: where records go, and that a batch is there once, whatever happens."""

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.dsl.partitioner import partition_for
from headwater.errors import StreamsError
from headwater.state.log import Files, Log, Partition, Record, UnknownTopic
from headwater.streams.spark import log_handles, log_writer
from headwater.streams.spark.log_writer import LogWriter, Output
from tests.state.log.helpers import FAST, read_all
from tests.state.log.layers import Faulty, Killed, Lossy

Outputs = list[tuple[str, list[Output]]]
Found = dict[tuple[str, int], list[Record]]

SHARDS = ((0, 0), (0, 1), (3, 0))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a few records be several chunks, and let go of all logs afterwards."""
    monkeypatch.setattr(log_writer, "_CHUNK_RECORDS", 3)
    yield
    for handles in log_handles._open.values():
        handles.close()
    log_handles._open.clear()


def new_process(folder: Path, files: Files = FAST) -> None:
    """Forget what is open, as a process that dies; from here on the log is reached through this file layer."""
    handles = log_handles._open.pop(str(folder), None)
    if handles is not None:
        handles.close()
    log_handles._open[str(folder)] = log_handles.LogHandles(Log.open(folder, files))


def writer(folder: Path, query: str = "q", widest: int = 2) -> LogWriter:
    made: LogWriter = pickle.loads(pickle.dumps(LogWriter(folder, "shop", query, widest=widest)))
    return made


def make(folder: Path) -> Path:
    with Log.open(folder, FAST) as log:
        log.create_topic("out", 3)
    new_process(folder)
    return folder


def found(folder: Path) -> Found:
    with Log.open(folder, FAST) as log:
        return {
            (info.name, number): read_all(log.partition(info.name, number))
            for info in log.topics()
            for number in range(info.partitions)
        }


def outputs_of(batch: int, stage: int, shard: int, count: int) -> Outputs:
    """A batch that says where it is from, for a topic that is there and one that is not, some without a key."""
    random = Random(f"{batch} {stage} {shard}")
    outputs: Outputs = []
    for number in range(count):
        key = None if random.random() < 0.3 else b"k%d" % random.randrange(6)
        partition = random.randrange(2) if random.random() < 0.2 else None
        record = (key, b"%d.%d.%d.%d" % (batch, stage, shard, number), batch, (("n", b"%d" % number),), partition)
        outputs.append((random.choice(["out", "made"]), [record]))
    return outputs


def regrouped(outputs: Outputs, random: Random) -> Outputs:
    """The same records in the same order, in other pieces."""
    pieces: Outputs = []
    for topic, records in outputs:
        if pieces and pieces[-1][0] == topic and random.random() < 0.5:
            pieces[-1] = topic, pieces[-1][1] + records
        else:
            pieces.append((topic, records))
    return pieces


def undisturbed(folder: Path, batches: int, count: int) -> Found:
    for batch in range(batches):
        for stage, shard in SHARDS:
            writer(folder).write(stage, shard, batch, outputs_of(batch, stage, shard, count))
    return found(folder)


def test_a_record_goes_where_its_partition_says_else_its_key(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    keys = [b"alice", b"bob", b"carol", b"dave"]
    records: list[Output] = [(key, b"v", 5, (), None) for key in keys]
    writer(folder).write(0, 0, 0, [("out", [*records, (b"alice", None, 6, (("h", None),), 2)])])
    where = {(record[0], number) for (_, number), there in found(folder).items() for record in there if record[1]}
    assert where == {(key, partition_for(key, 3)) for key in keys}
    assert found(folder)["out", 2][-1][:4] == (b"alice", None, 6, (("h", None),))


def test_records_without_a_key_take_turns_that_are_the_same_again(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    for batch in range(6):
        # One each: a turn that began anew with every batch would fill the first partition only.
        outputs: Outputs = [("out", [(None, b"%d" % batch, 0, (), None)])]
        writer(one).write(0, 0, batch, outputs)
        new_process(other)
        writer(other).write(0, 0, batch, outputs)
    assert [len(found(one)["out", number]) for number in range(3)] == [2, 2, 2]
    assert found(one) == found(other)


def test_a_missing_topic_is_made_as_wide_as_the_widest(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    writer(folder, widest=5).write(0, 0, 0, [("made", [(b"k", b"v", 0, (), 4)])])
    assert {number for topic, number in found(folder) if topic == "made"} == set(range(5))
    with pytest.raises(UnknownTopic, match="has the partitions 0 to 4 and no 5"):
        writer(folder).write(0, 0, 1, [("made", [(b"k", b"v", 0, (), 5)])])


def test_a_topic_made_anew_is_written_to(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    writer(folder).write(0, 0, 0, [("out", [(b"k", b"old", 0, (), 0)])])
    with Log.open(folder, FAST) as log:
        log.delete_topic("out")
        log.create_topic("out", 1)
    writer(folder).write(0, 0, 1, [("out", [(b"k", b"new", 0, (), None)])])
    assert [record[1] for record in found(folder)["out", 0]] == [b"new"]


def test_a_log_made_anew_in_the_same_place_is_written_to(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    writer(folder).write(0, 0, 0, [("out", [(b"k", b"old", 0, (), 0)])])
    folder.rename(tmp_path / "away")
    with Log.open(folder, FAST) as log:
        log.create_topic("out")
    writer(folder).write(0, 0, 1, [("out", [(b"k", b"new", 0, (), None)])])
    assert [record[1] for record in found(folder)["out", 0]] == [b"new"]


def test_what_the_log_refuses_is_said(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    with Log.open(folder, FAST) as log:
        log.create_topic("latest", compact=True)
    with pytest.raises(StreamsError, match="latest-0 is compacted by key"):
        writer(folder).write(0, 0, 0, [("latest", [(None, b"v", 0, (), None)])])


def test_the_same_batch_again_adds_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    expected = undisturbed(folder, 3, 20)
    assert sum(map(len, expected.values())) == 3 * 3 * 20
    new_process(folder)
    assert undisturbed(folder, 3, 20) == expected


def test_another_checkpoint_is_another_query(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    for query in ("first", "second", "first"):
        writer(folder, query).write(0, 0, 0, [("out", [(b"k", query.encode(), 0, (), 0)])])
    assert [record[1] for record in found(folder)["out", 0]] == [b"first", b"second"]


def test_more_partitions_than_are_kept_open(tmp_path: Path) -> None:
    folder = make(tmp_path / "log")
    with Log.open(folder, FAST) as log:
        log.create_topic("wide", log_handles._MOST + 40)
    for batch in range(2):
        records: list[Output] = [(b"k", b"%d" % batch, 0, (), n) for n in range(log_handles._MOST + 40)]
        for _ in range(2):
            writer(folder).write(0, 0, batch, [("wide", records)])
    there = [[record[1] for record in records] for place, records in found(folder).items() if place[0] == "wide"]
    assert there == [[b"0", b"1"]] * (log_handles._MOST + 40)


# ---- killed at any moment ------------------------------------------------------------------------------------------


def until_killed(folder: Path, files: Faulty, batches: int, count: int, random: Random, begin: int = 0) -> int:
    """Write batch after batch until the process is killed or done; return the first that is not known to be there."""
    for batch in range(begin, batches):
        try:
            new_process(folder, files)
            for stage, shard in SHARDS:
                outputs = regrouped(outputs_of(batch, stage, shard, count), random)
                writer(folder).write(stage, shard, batch, outputs)
        except Killed:
            return batch
    return batches


def test_a_kill_at_every_single_operation(tmp_path: Path) -> None:
    expected = undisturbed(make(tmp_path / "undisturbed"), 2, 12)
    at = torn = 0
    while True:
        folder, files, random = make(tmp_path / str(at)), Faulty(at, code=None), Random(at)
        begin = until_killed(folder, files, 2, 12, random)
        if not files.dead:
            break
        there = found(folder)
        torn += there != expected and any(there.values())
        assert until_killed(folder, Faulty(), 2, 12, random, begin) == 2
        assert found(folder) == expected, at
        at += 1
    assert torn > 10


@settings(max_examples=60, deadline=None)
@given(
    batches=st.integers(1, 4),
    count=st.integers(0, 25),
    kills=st.lists(st.integers(0, 60), max_size=6),
    seed=st.integers(0, 1 << 30),
)
def test_kills_lose_and_double_nothing(
    tmp_path_factory: pytest.TempPathFactory, batches: int, count: int, kills: Sequence[int], seed: int
) -> None:
    random = Random(seed)
    folder = make(tmp_path_factory.mktemp("killed") / "log")
    begin = 0
    for at in kills:
        begin = until_killed(folder, Faulty(at, code=None), batches, count, random, begin)
    assert until_killed(folder, Faulty(), batches, count, random, begin) == batches
    expected = undisturbed(make(tmp_path_factory.mktemp("undisturbed") / "log"), batches, count)
    assert found(folder) == expected


def test_a_power_loss_after_a_batch_takes_nothing_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    files = Lossy(folder, tmp_path / "shadow")
    new_process(folder, files)
    expected = undisturbed(folder, 2, 12)
    new_process(folder, files)
    files.lose_power()
    assert found(folder) == expected


def test_a_power_loss_after_a_replay_takes_nothing_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "log"
    files = Lossy(folder, tmp_path / "shadow")
    new_process(folder, files)

    def dies(partition: Partition) -> int:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "sync", dies)
        with pytest.raises(Killed):
            undisturbed(folder, 1, 12)
    before = found(folder)
    assert any(before.values())
    new_process(folder, files)
    expected = undisturbed(folder, 1, 12)
    new_process(folder, files)
    files.lose_power()
    assert found(folder) == expected


# ---- real processes ------------------------------------------------------------------------------------------------

PROCESS = """
import os, signal, sys
from pathlib import Path
from headwater.state.log import Partition
from headwater.streams.spark import log_writer
from tests.spark.test_log_writer import SHARDS, outputs_of, writer

folder, checkpoint, batches, count, kill_at, when, once = sys.argv[1:]
log_writer._CHUNK_RECORDS = 3
append, appends = Partition.append, 0

def dying(self, records, *, producer=None, sequence=None, sync=False):
    global appends
    appends += 1
    if once == "no":
        producer = sequence = None
    if appends == int(kill_at) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, records, producer=producer, sequence=sequence, sync=sync)
    if appends == int(kill_at) and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)

Partition.append = dying
done = Path(checkpoint)
for batch in range(int(done.read_text()) if done.exists() else 0, int(batches)):
    for stage, shard in SHARDS:
        writer(Path(folder)).write(stage, shard, batch, outputs_of(batch, stage, shard, int(count)))
    done.write_text(str(batch + 1))
"""
BATCHES, COUNT = 4, 40


def run(folder: Path, kill_at: int = -1, when: str = "", once: str = "yes") -> int:
    arguments = [str(folder), str(folder.with_suffix(".done")), str(BATCHES), str(COUNT), str(kill_at), when, once]
    return subprocess.run(
        [sys.executable, "-c", PROCESS, *arguments], cwd=Path(__file__).parents[2], timeout=120, check=False
    ).returncode


def killed_again_and_again(folder: Path, kills: int, once: str) -> Found:
    random = Random(7)
    for _ in range(kills):
        assert run(folder, random.randrange(1, 40), random.choice(["before", "after"]), once) == -signal.SIGKILL
    assert run(folder, once=once) == 0
    return found(folder)


def values(there: Found) -> dict[tuple[str, int], list[bytes]]:
    return {place: sorted(record[1] or b"" for record in records) for place, records in there.items()}


def test_a_process_killed_ten_times_writes_each_batch_once(tmp_path: Path) -> None:
    expected = undisturbed(make(tmp_path / "undisturbed"), BATCHES, COUNT)
    there = killed_again_and_again(make(tmp_path / "killed"), 10, "yes")
    assert there == expected


def test_without_sequence_numbers_the_kills_are_noticed(tmp_path: Path) -> None:
    """The control: the same kills, and what was written before each is there twice."""
    expected = undisturbed(make(tmp_path / "undisturbed"), BATCHES, COUNT)
    there = killed_again_and_again(make(tmp_path / "killed"), 3, "no")
    assert sum(map(len, there.values())) > sum(map(len, expected.values()))


def test_two_processes_that_write_the_same_batches_at_once_write_them_once(tmp_path: Path) -> None:
    """Spark may run a task twice, or not know that an earlier one still lives."""
    folder = make(tmp_path / "log")
    arguments = [[str(folder), str(tmp_path / name), str(BATCHES), str(COUNT), "-1", "", "yes"] for name in ("a", "b")]
    both = [
        subprocess.Popen([sys.executable, "-c", PROCESS, *each], cwd=Path(__file__).parents[2]) for each in arguments
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    assert values(found(folder)) == values(undisturbed(make(tmp_path / "undisturbed"), BATCHES, COUNT))
