"""State, log and committed offsets that do not fit together (embedded log): refused by name before anything is written,
and cured by putting back what was replaced, or by a reset."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Config, StateError, StreamsBuilder, StreamsError, Topology
from headwater.state.log import Log
from headwater.state.rocks import RocksBackend
from headwater.streams.log_connection import LogConnection
from headwater.streams.reset import Target, open_reset
from tests.streams.apps import Place, counting


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "log")


def silent() -> Topology:
    """A store and no results."""
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts")
    return builder.build()


def regrouped() -> Topology:
    """Counts behind a repartition."""
    builder = StreamsBuilder()
    again = builder.stream("in").group_by(lambda key, value: key, name="again")
    again.count(store="counts").to_stream().to("out")
    return builder.build()


def process(place: Place, topology: Topology | None = None, **settings: Any) -> dict[str, int]:
    with place.app(topology, **settings) as app:
        app.wait_idle()
        return dict(app.store("counts").all())


def refused(place: Place, match: str, topology: Topology | None = None, **settings: Any) -> str:
    """Start twice: both are refused for the same reason, and no result is written."""
    before = place.out() if "out" in {info.name for info in Admin(place.broker).topics()} else []
    said = ""
    for _ in range(2):
        with pytest.raises(StateError, match=match) as refusal:
            process(place, topology, **settings)
        said = str(refusal.value)
    if before:
        assert place.out() == before
    return said


def kept(place: Place, path: str) -> Callable[[], None]:
    """Copy a directory of the log, and return what puts the copy back."""
    target, copy = place.folder / path, place.folder.with_name(f"copy-{len(list(place.folder.parent.iterdir()))}")
    shutil.copytree(target, copy, ignore=shutil.ignore_patterns("sockets"))

    def put_back() -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(copy, target)

    return put_back


def reset(place: Place, topology: Topology, target: Target = None) -> None:
    with open_reset(topology, Config("app"), place.broker, target) as planned:
        planned.run()


@pytest.mark.parametrize("make", [counting, silent, regrouped])
@pytest.mark.parametrize("exactly_once", [True, False])
def test_state_from_an_older_copy_is_refused_and_drops_no_result(
    place: Place, make: Callable[[], Topology], exactly_once: bool
) -> None:
    place.send(*"ab" * 10)
    process(place, make(), exactly_once=exactly_once)
    older = kept(place, "apps")
    for _ in range(5):
        place.send(*"abb")
        process(place, make(), exactly_once=exactly_once)
    newest = kept(place, "apps")
    older()
    place.send(*"aabb")
    said = refused(place, r"state of task \d_0 in .* is older than what it com", make(), exactly_once=exactly_once)
    assert "headwater reset" in said
    newest()
    assert process(place, make(), exactly_once=exactly_once) == {"a": 17, "b": 22}
    if make is not silent:
        assert len(place.out()) == 39


def test_state_that_is_older_than_its_results_is_refused_without_the_groups_offsets(place: Place) -> None:
    place.send(*"ab")
    process(place)
    older = kept(place, "apps")
    place.send(*"ab")
    process(place)
    older()
    shutil.rmtree(place.folder / "groups")
    (place.folder / "groups").mkdir()
    refused(place, r"older than its results: out-0 has those up to its commit 2 there, the state knows 1")


def test_results_of_a_first_commit_whose_state_is_gone_are_not_written_again(place: Place) -> None:
    """Killed between log and group, with all of the write-ahead log lost: only the log knows of the commit."""
    place.send(*"ab")
    taken = place.folder.with_name("killed")
    points: list[str] = []

    def at(point: str) -> None:
        points.append(point)
        if points.count("after-sync") == 1 and point == "after-sync":
            shutil.copytree(place.folder, taken, ignore=shutil.ignore_patterns("sockets"))

    from headwater.streams.run import open_app

    with open_app(counting(), Config("app"), place.broker, at=at) as app:
        app.wait_idle()
    for wal in (taken / "apps" / "app" / "tasks" / "0_0").glob("*.log"):
        wal.write_bytes(b"")
    killed = Place(taken, topics=())
    assert len(killed.out()) == 2
    refused(killed, "older than its results: out-0 has those up to its commit 1 there, the state knows 0")


def test_an_output_topic_from_an_older_copy_is_refused(place: Place) -> None:
    place.send(*"ab")
    process(place)
    older = kept(place, "topics/out")
    place.send(*"ab")
    process(place)
    newest = kept(place, "topics/out")
    older()
    place.send(*"ab")
    refused(place, r"out-0 has lost results of task 0_0: it has those up to commit 1, .* has written 2")
    newest()
    assert process(place) == {"a": 3, "b": 3}
    assert len(place.out()) == 6


def test_an_output_topic_made_anew_begins_another_sequence(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        place.send(*"ab")
        process(place)
    Admin(place.broker).delete_topic("out")
    process(place)
    assert "out has been deleted and made anew" in caplog.text
    caplog.clear()
    # Nothing has been written there yet; then something has.
    process(place)
    for _ in range(2):
        place.send("a")
        process(place)
    assert len(place.out()) == 2
    assert "anew" not in caplog.text
    with Log.open(place.folder) as log, log.partition("out", 0) as out:
        assert [batch.sequence for batch in out.dump()] == [1, 2]


def test_an_internal_topic_that_is_gone_is_refused(place: Place) -> None:
    place.send(*"ab")
    process(place, regrouped())
    put_back = kept(place, "topics/app-again-repartition")
    shutil.rmtree(place.folder / "topics" / "app-again-repartition")
    refused(place, "internal topic 'app-again-repartition' of 'app' is gone", regrouped())
    Admin(place.broker).create_topic("app-again-repartition")
    refused(place, "internal topic 'app-again-repartition' of 'app' was deleted and made anew", regrouped())
    put_back()
    assert process(place, regrouped()) == {"a": 1, "b": 1}


def test_a_committed_offset_beyond_the_end_is_an_error_that_names_both(place: Place) -> None:
    place.send(*"a" * 10)
    process(place)
    older = kept(place, "topics/in")
    place.send(*"a" * 10)
    process(place)
    newest = kept(place, "topics/in")
    older()
    refused(place, r"in-0 ends at 10, but 'app' has committed offset 20 of it")
    place.send("a")
    refused(place, r"in-0 ends at 11, but 'app' has committed offset 20 of it")
    newest()
    place.send("a")
    assert process(place) == {"a": 21}
    assert len(place.out()) == 21


def test_an_input_topic_made_anew_is_read_from_its_start(place: Place) -> None:
    place.send(*"aaa")
    process(place)
    Admin(place.broker).delete_topic("in")
    Admin(place.broker).create_topic("in")
    place.send(*"aa")
    assert process(place) == {"a": 5}


@pytest.mark.parametrize("lost", ["apps", "apps/app/tasks/0_0", "apps/app/tasks/1_0"])
def test_committed_offsets_without_state_are_refused_and_a_reset_cures_it(place: Place, lost: str) -> None:
    """Read again, the source would be written into the repartition topic once more: 240 for 120."""
    place.send(*"ab" * 60)
    process(place, regrouped())
    put_back = kept(place, lost)
    shutil.rmtree(place.folder / lost)
    said = refused(place, r"has no state in .*, but offset 120 of .*-0 was committed", regrouped())
    assert "headwater reset" in said
    put_back()
    assert process(place, regrouped()) == {"a": 60, "b": 60}
    shutil.rmtree(place.folder / lost)
    reset(place, regrouped())
    assert process(place, regrouped()) == {"a": 60, "b": 60}


def test_another_state_directory_is_refused(place: Place, tmp_path: Path) -> None:
    place.send(*"ab")
    process(place, state_dir=tmp_path / "one")
    refused(place, "name the state directory it was in", state_dir=tmp_path / "two")
    assert process(place, state_dir=tmp_path / "one") == {"a": 1, "b": 1}


@pytest.mark.parametrize("target", [None, "earliest", "latest", 1])
def test_after_a_reset_it_starts_and_stops_and_starts(place: Place, target: Target) -> None:
    place.send(*"aaa")
    process(place, regrouped())
    older = kept(place, "apps")
    place.send(*"aa")
    process(place, regrouped())
    older()
    refused(place, "older", regrouped())
    reset(place, regrouped(), target)
    counted = {None: 5, "earliest": 5, "latest": 0, 1: 4}[target]
    assert process(place, regrouped()) == ({"a": counted} if counted else {})
    place.send("a")
    for _ in range(2):
        assert process(place, regrouped()) == {"a": counted + 1}
    assert len(place.out()) == 5 + counted + 1


def test_a_task_that_has_never_committed_starts(place: Place) -> None:
    for _ in range(2):
        assert process(place, regrouped()) == {}
    place.send("a")
    assert process(place, regrouped()) == {"a": 1}


def test_state_of_earlier_versions_opens_and_is_checked_from_then_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without names of their own and without ids of output topics."""

    def nameless(self: LogConnection, task_id: str, backend: RocksBackend) -> None:
        self._producers[task_id] = f"app/{task_id}"

    new_ids = LogConnection._new_ids
    with monkeypatch.context() as earlier:
        earlier.setattr(LogConnection, "_name", nameless)
        earlier.setattr(LogConnection, "_new_ids", lambda self, commit, outputs: new_ids(self, commit, ()))
        place.send(*"ab")
        process(place)
    older = kept(place, "apps")
    place.send(*"ab")
    assert process(place) == {"a": 2, "b": 2}
    assert len(place.out()) == 4
    with Log.open(place.folder) as log, log.partition("out", 0) as out:
        assert {batch.producer for batch in out.dump()} == {"app/0_0"}
    Admin(place.broker).delete_topic("out")
    place.send("a")
    assert process(place) == {"a": 3, "b": 2}
    assert len(place.out()) == 1
    older()
    refused(place, "older than what it committed")


def test_damaged_offsets_of_the_group_are_refused_and_a_reset_cures_it(place: Place) -> None:
    place.send(*"ab")
    process(place)
    offsets = place.folder / "groups" / "app.group" / "offsets"
    good = offsets.read_bytes()
    offsets.write_bytes(good[:-5])
    for _ in range(2):
        with pytest.raises(StreamsError, match="is damaged, its checksum is wrong"):
            process(place)
    offsets.write_bytes(good)
    assert process(place) == {"a": 1, "b": 1}
    offsets.write_bytes(b"")
    reset(place, counting())
    assert process(place) == {"a": 1, "b": 1}


def test_no_handler_passes_over_damaged_state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.send(*"ab")
    assert process(place) == {"a": 1, "b": 1}
    place.send(*"ab")
    read = RocksBackend.get_many

    def spoiled(self: RocksBackend, store: str, keys: list[bytes]) -> list[bytes | None]:
        if store == "counts":
            raise self._damaged(store, Exception("Corruption: block checksum mismatch"))
        return read(self, store, keys)

    with monkeypatch.context() as patch:
        patch.setattr(RocksBackend, "get_many", spoiled)
        app = place.app(on_processing_error="skip").start()
        with pytest.raises(StateError, match=r"store 'counts' in .* cannot be read: Corruption"):
            app.join()
    assert process(place) == {"a": 2, "b": 2}


def test_a_reset_is_a_remedy_where_the_files_of_an_internal_topic_are_gone(place: Place) -> None:
    place.send("a", "a", "b")
    assert process(place, regrouped()) == {"a": 2, "b": 1}
    shutil.rmtree(place.folder / "topics" / "app-again-repartition")
    refused(place, "internal topic 'app-again-repartition' of 'app' is gone", regrouped())
    reset(place, regrouped())
    assert process(place, regrouped()) == {"a": 2, "b": 1}


@pytest.mark.parametrize("topology", [counting, regrouped])
def test_an_older_copy_of_an_input_that_has_grown_past_the_committed_offset_is_refused(
    place: Place, topology: Callable[[], Topology]
) -> None:
    for number in range(10):
        place.send("a", at=1_000 + number)
    process(place, topology())
    older = kept(place, "topics/in")
    for number in range(10):
        place.send("a", at=2_000 + number)
    newer = process(place, topology())
    older()
    for number in range(30):
        place.send("a", at=3_000 + number)
    assert newer == {"a": 20}
    for _ in range(2):
        refused(place, "in-0@19 is another record than the one that 'app' has processed", topology())
    reset(place, topology())
    assert process(place, topology()) == {"a": 40}
