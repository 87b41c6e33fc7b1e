"""The life of an application in this process: its states, faults that pass and that do not, what others may ask."""

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headwater import Config, KeyValue, Processor, Record, StreamsBuilder, StreamsError, Topology, run
from headwater.state.log import Log
from headwater.state.log.errors import storage_error
from headwater.streams import app as app_module
from headwater.streams.app import App
from headwater.streams.log_connection import LogConnection, member_name
from headwater.streams.worker import Clock, Worker
from tests.streams.apps import TAKEOVER_SECONDS, Place, counting, until

LONG = timedelta(hours=1)
LONG_8 = [(n).to_bytes(8, "big") for n in range(6)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_states_are_told_in_order(place: Place) -> None:
    seen: list[tuple[str, str]] = []
    app = place.app(on_state=lambda new, old: seen.append((old, new)))
    assert app.state == "created"
    with app:
        assert app.state == "running"
        app.pause()
        app.resume()
    assert app.state == "stopped"
    states = ["created", "starting", "running", "paused", "running", "stopping", "stopped"]
    assert seen == list(pairwise(states))


def test_wait_idle_returns_when_all_is_processed_and_committed(place: Place) -> None:
    place.send(*["a", "b", "a"] * 1000)
    with place.app(commit_interval=LONG) as app:
        app.wait_idle()
        assert app.store("counts").get("a") == 2000
        assert len(place.out()) == 3000
        place.send("a")
        app.wait_idle()
        assert app.store("counts").get("a") == 2001


def test_wait_idle_gives_up(place: Place) -> None:
    with place.app() as app:
        app.pause()
        place.send("a")
        with pytest.raises(StreamsError, match=r"still busy after 0\.1 s"):
            app.wait_idle(0.1)


def test_a_paused_application_processes_nothing_until_it_is_resumed(place: Place) -> None:
    with place.app() as app:
        app.pause()
        place.send("a")
        assert app.state == "paused"
        threading.Event().wait(0.3)
        assert app.metrics()["records-total"] == 0
        assert app.metrics()["lag"] == 1
        app.resume()
        app.wait_idle()
        assert app.state == "running"
        assert app.metrics()["records-total"] == 1


def test_stores_show_the_last_commit_and_nothing_after_it(place: Place) -> None:
    place.send("a")
    with place.app(commit_interval=LONG) as app:
        counts = app.store("counts")
        until(lambda: app.metrics()["records-total"] == 1)
        assert counts.get("a") is None
        assert list(counts.all()) == []
        app.commit()
        assert counts.get("a") == 1
        place.send("a", "b")
        until(lambda: app.metrics()["records-total"] == 3)
        assert list(counts.all()) == [("a", 1)]
        app.commit()
        assert list(counts.range("a", "b")) == [("a", 2), ("b", 1)]


def test_a_global_table_can_be_read_and_an_unknown_store_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, topics=("in", "names"))
    builder = StreamsBuilder()
    names = builder.global_table("names", store="names")
    builder.stream("in").join(names, lambda left, right: [left, right], select=lambda key, value: key).to("out")
    place.send("a", topic="names", value="Ada")
    with place.app(builder.build()) as app:
        assert app.store("names").get("a") == "Ada"
        place.send("b", topic="names", value="Bob")
        app.wait_idle()
        assert list(app.store("names").all()) == [("a", "Ada"), ("b", "Bob")]
        with pytest.raises(StreamsError, match="no store 'nme', only names"):
            app.store("nme")


def test_inner_stores_of_steps_cannot_be_read(place: Place) -> None:
    from headwater import Suppress, TimeWindows

    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count()
    counts.suppress(Suppress.until_window_closes(), name="held").to_stream().to("out")
    with place.app(builder.build()) as app, pytest.raises(StreamsError, match="inner store"):
        app.store("held-store")


class Faulty(LogConnection):
    """A connection whose reads fail as often as it is told."""

    faults: ClassVar[list[BaseException]] = []

    def read(self, topic: str, partition: int, offset: int, limit: int) -> Any:
        records = super().read(topic, partition, offset, limit)
        if records and self.faults:
            raise self.faults.pop()
        return records


def faulty(place: Place, *faults: BaseException) -> App:
    """An application whose connection fails when it has something to read, once with each fault."""
    topology, config = counting(), Config("app", commit_interval=timedelta(0))
    Faulty.faults = list(faults)

    def make(clock: Clock) -> Worker:
        connection = Faulty(Log.open(place.folder), "app", member_name(), place.folder / "apps" / "app")
        return Worker(topology, config, connection, place.folder / "apps" / "app" / "tasks", clock)

    return App(make, topology)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "FIRST_WAIT", 0.01)


@pytest.mark.usefixtures("quick")
def test_it_starts_again_after_faults_that_may_pass(place: Place) -> None:
    place.send("a", "a")
    full = storage_error("append", place.folder, OSError(28, "No space left on device"))
    full.__cause__ = OSError(28, "No space left on device")
    app = faulty(place, ConnectionResetError("gone"), full)
    seen: list[str] = []
    app._on_state = lambda new, old: seen.append(new)
    with app:
        until(lambda: app.restarts == 2 and app.state == "running")
        app.wait_idle()
        assert app.store("counts").get("a") == 2
    assert app.error is None
    assert seen.count("restarting") == 2
    assert place.out() == [(b"a", LONG_8[1]), (b"a", LONG_8[2])]


@pytest.mark.usefixtures("quick")
def test_a_pause_outlasts_a_restart(place: Place) -> None:
    app = faulty(place, ConnectionResetError("gone"))
    seen: list[str] = []
    app._on_state = lambda new, old: seen.append(new)
    with app:
        app.pause()
        place.send("a")
        worker = app._worker
        assert worker is not None
        worker.paused = False  # so that it reads, and fails
        until(lambda: "restarting" in seen and app.state != "restarting")
        assert (app.restarts, app.state) == (1, "paused")
        app.resume()
        app.wait_idle()
        assert app.store("counts").get("a") == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fault", [PermissionError(13, "no"), StreamsError("broken"), ZeroDivisionError()])
def test_it_stops_at_a_fault_that_will_not_pass(place: Place, fault: BaseException) -> None:
    place.send("a")
    app = faulty(place, fault)
    app.start()
    until(lambda: app.state == "failed")
    assert app.restarts == 0
    with pytest.raises(type(fault)):
        app.join()
    with pytest.raises(type(fault)):
        app.commit()
    with pytest.raises(type(fault)):
        app.store("counts").get("a")
    app.stop()


def test_a_function_that_raises_stops_it_and_says_where(place: Place) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: 1 // 0).to("out")
    place.send("a")
    app = place.app(builder.build())
    with pytest.raises(StreamsError, match=r"in-0@0: ZeroDivisionError"), app:
        app.wait_idle()
    assert app.state == "failed"


def test_what_keeps_it_from_starting_is_raised_by_start(tmp_path: Path) -> None:
    app = Place(tmp_path, topics=("other",)).app()
    with pytest.raises(StreamsError, match="headwater topics create in"):
        app.start()


def test_two_topologies_under_one_id_are_refused(place: Place) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("elsewhere")
    with place.app(), pytest.raises(StreamsError, match="'app' is running with another topology"):
        place.app(builder.build()).start()


def test_a_listener_may_ask_the_application(place: Place) -> None:
    asked: list[Any] = []

    def listener(new: str, old: str) -> None:
        if new in ("running", "stopping"):
            asked.append(app.metrics()["state"])

    app = place.app(on_state=listener)
    with app:
        pass
    assert asked == ["running", "stopping"]


def test_asking_before_and_after_does_not_hang(place: Place) -> None:
    app = place.app()
    with pytest.raises(StreamsError, match="not been started"):
        app.commit()
    with app:
        pass
    with pytest.raises(StreamsError, match="has stopped"):
        app.commit()
    assert app.metrics()["state"] == "stopping"


def test_a_wrong_question_does_not_disturb_the_worker(place: Place) -> None:
    place.send("a")
    with place.app() as app:
        with pytest.raises(TypeError):
            app.store("counts").get()
        app.wait_idle()
        assert app.store("counts").get("a") == 1


class Remember(Processor):
    """Keeps each value under its key."""

    def process(self, record: Record) -> None:
        self.context.store("last").put(record.key, record.value)


def test_tasks_are_shared_by_two_workers_and_taken_over(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=4)
    topology = Topology().add_source("s", "in").add_processor("p", Remember, "s").add_store(KeyValue("last"), "p")
    keys = [f"k{n}" for n in range(40)]

    def tasks(app: App) -> set[str]:
        return set(app.metrics()["tasks"])

    with place.app(topology) as first:
        assert len(tasks(first)) == 4
        place.send(*keys)
        first.wait_idle()
        with place.app(topology) as second:
            assert until(lambda: len(tasks(first)) == len(tasks(second)) == 2) < TAKEOVER_SECONDS
            first.wait_idle()
            second.wait_idle()
            both = [key for app in (first, second) for key, _ in app.store("last").all()]
            assert sorted(both) == sorted(keys)
        assert until(lambda: len(tasks(first)) == 4) < TAKEOVER_SECONDS
        first.wait_idle()
        assert [key for key, _ in first.store("last").all()] == sorted(keys)


def test_metrics_count_tasks_steps_and_stores(place: Place) -> None:
    place.send("a", "b", "a")
    with place.app(metrics="debug") as app:
        app.wait_idle()
        metrics = app.metrics()
    assert metrics["records-total"] == 3
    assert metrics["commits-total"] >= 1
    (task,) = metrics["tasks"].values()
    assert task["lag"] == task["queued"] == 0
    assert task["latency-ms"] > 0
    assert task["stream-time"] == 1000
    assert task["positions"] == {"in-0": 3}
    assert {name: step["records-total"] for name, step in task["steps"].items()} == {
        "KSTREAM-SOURCE-0000000000": 3,
        "KSTREAM-AGGREGATE-0000000001": 3,
        "KTABLE-TOSTREAM-0000000002": 3,
        "KSTREAM-SINK-0000000003": 3,
    }
    assert task["stores"]["counts"]["rows-written-total"] == 2
    assert task["stores"]["counts"]["database-reads-total"] == 2
    assert task["stores"]["counts"]["buffer-hits-total"] == 1
    assert Config.from_kafka({"metrics.recording.level": "DEBUG"}).metrics == "debug"
    with place.app() as app:
        steps = app.metrics()["tasks"]["0_0"]["steps"]
        assert "records-total" not in steps["KSTREAM-AGGREGATE-0000000001"]


def test_run_gives_an_application_as_a_context_manager(place: Place) -> None:
    place.send("a")
    with run(counting(), app_id="other", broker=place.broker, block=False) as app:
        app.wait_idle()
        assert app.metrics()["app-id"] == "other"
        assert app.store("counts").get("a") == 1


SERVICE = """
import sys
from headwater import run
from tests.streams.apps import counting
run(counting(), app_id="app", broker=sys.argv[1], on_state=lambda new, old: print(new, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_after_a_last_commit(place: Place, number: int) -> None:
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", SERVICE, place.broker]
    with subprocess.Popen(command, cwd=root, env=os.environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["starting\n", "running\n"]
        place.send("a", "a")
        until(lambda: Log.open(place.folder).group("app").committed() == {("in", 0): 2})
        process.send_signal(number)
        assert process.stdout.read() == "stopping\nstopped\n"
        assert process.wait(10) == 0
    with place.app() as app:
        app.wait_idle()
        assert app.metrics()["records-total"] == 0
        assert app.store("counts").get("a") == 2
    assert len(place.out()) == 2
