"""A worker whose topics change under it, whose functions are slow, and whose sinks name topics as they go."""

import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from headwater import Admin, Processor, Producer, StreamsBuilder, StreamsError, TimeWindows, Topology
from headwater.state.log import Log
from headwater.streams.connection import Passing
from headwater.streams.worker import TopicsChanged, Worker
from tests.streams.apps import Place, counting, until


def test_a_topic_made_anew_is_read_from_its_beginning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path)
    place.send("a", "a", "b")
    with place.app() as app:
        app.wait_idle()
    Admin(place.broker).delete_topic("in")
    Admin(place.broker).create_topic("in")
    place.send("a", "c", "c", "c", "c")
    with caplog.at_level(logging.WARNING, logger="headwater"), place.app() as app:
        app.wait_idle()
        assert dict(app.store("counts").all()) == {"a": 3, "b": 1, "c": 4}
    assert "made anew" in caplog.text


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def test_new_partitions_of_an_input_are_read_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=2)
    with place.app(copying()) as app:
        app.wait_idle()
        Admin(place.broker).alter_topic("in", partitions=4)
        with Producer(place.broker) as producer:
            for partition in range(4):
                producer.send("in", key=f"k{partition}", value='"x"', partition=partition)
        until(lambda: len(place.out()) == 4)
        assert app.state == "running"


def test_brokers_that_are_away_just_then_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, partitions=2)
    check, commit = Worker._check_topics, Worker.commit
    changed: list[Worker] = []
    away: list[Worker] = []

    def notice(worker: Worker) -> None:
        try:
            check(worker)
        except TopicsChanged:
            changed.append(worker)
            raise

    def commit_later(worker: Worker) -> bool:
        if changed and not away:
            away.append(worker)
            raise Passing("the brokers are away")
        return commit(worker)

    monkeypatch.setattr(Worker, "_check_topics", notice)
    monkeypatch.setattr(Worker, "commit", commit_later)
    with place.app(copying()) as app:
        app.wait_idle()
        Admin(place.broker).alter_topic("in", partitions=4)
        until(lambda: away)
        place.send("a", "b", "c")
        until(lambda: len(place.out()) == 3)
        assert app.state == "running"


class Sulking(Processor):
    def close(self) -> None:
        raise ValueError("no")


def test_a_step_that_cannot_be_closed_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=2)
    sulking, copying = StreamsBuilder(), StreamsBuilder()
    sulking.stream("in").process(Sulking)
    copying.stream("in").to("out")
    app = place.app(sulking.build()).start()
    app.wait_idle()
    with pytest.raises(StreamsError, match="close failed with ValueError: no"):
        app.__exit__(None, None, None)
    # Its tasks and its place in the group are free.
    with place.app(copying.build()) as other:
        place.send("a", "b", "c")
        until(lambda: len(place.out()) == 3)
        assert len(other.metrics()["tasks"]) == 2


def test_new_partitions_under_a_repartition_stop_the_application_by_name(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda key, value: value, name="by-value").count(store="counts")
    place = Place(tmp_path, partitions=2)
    app = place.app(builder.build()).start()
    app.wait_idle()
    Admin(place.broker).alter_topic("in", partitions=4)
    with pytest.raises(StreamsError, match=r"'by-value-repartition' has 2 partitions, but the topology needs 4"):
        app.join()


def test_records_deleted_before_they_were_read_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path)
    place.send("a")
    with place.app() as app:
        app.wait_idle()
    place.send("b", "b", "b")
    with Log.open(tmp_path) as log, log.partition("in", 0) as partition:
        partition.delete_before(3)
    with caplog.at_level(logging.WARNING, logger="headwater"), place.app() as app:
        app.wait_idle()
    assert "in-0: 2 records were deleted before they were processed" in caplog.text


def test_old_events_are_kept_as_long_as_new_ones(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.send("a", at=1_000)
    with Log.open(tmp_path) as log, log.partition("in", 0) as partition:
        log.maintain()
        assert (partition.start, partition.end) == (0, 1)
        month_ago = time.time() - 30 * 86_400
        for file in partition.directory.glob("*.log"):
            os.utime(file, (month_ago, month_ago))
        log.maintain()
        assert (partition.start, partition.end) == (1, 1)


def slow() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: time.sleep(0.02) or value).to("out")
    return builder.build()


def test_a_slow_function_holds_up_neither_commits_nor_the_stop(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.send(*["k"] * 1_000)
    with place.app(slow()):
        until(lambda: place.out())
        began = time.monotonic()
    # What is left takes 15 s.
    assert time.monotonic() - began < 12
    assert 0 < len(place.out()) < 1_000


def test_topics_that_a_function_names_are_made(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, context: f"to-{key}")
    place = Place(tmp_path)
    place.send("a", "b")
    with place.app(builder.build()) as app:
        app.wait_idle()
        assert len(place.out("to-a")) == len(place.out("to-b")) == 1


def test_stores_that_come_and_go_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path)
    with place.app():
        pass
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().reduce(lambda old, new: new, store="latest").to_stream().to("elsewhere")
    with caplog.at_level(logging.WARNING, logger="headwater"), place.app(builder.build()):
        pass
    assert "new stores, which start empty: latest" in caplog.text
    assert "stores that are gone: counts; their rows are kept aside until `headwater reset --unused`" in caplog.text


def test_an_app_is_started_once_and_makes_no_log(tmp_path: Path) -> None:
    place = Place(tmp_path / "log")
    app = place.app()
    with app, pytest.raises(StreamsError, match="started once"):
        app.start()
    nowhere = tmp_path / "nowhere"
    place.broker, place.folder = f"log://{nowhere}", nowhere
    with pytest.raises(StreamsError, match="no log"):
        place.app(counting()).start()
    assert not (nowhere / "topics").exists()
    assert not (nowhere / "log").exists()


def windowed() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=1))).count(store="counts", name="counting")
    return builder.build()


def test_late_records_are_warned_about_by_step_and_stay_counted_when_their_task_moves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path, partitions=2)
    # One of them is in the other partition.
    keys = ["a", "b", "c", "d"]
    place.send(*keys, at=60_000)
    place.send(*keys, at=1_000)
    with caplog.at_level(logging.WARNING, logger="headwater"), place.app(windowed()) as app:
        app.wait_idle()
        assert app.metrics()["late-records-total"] == 4
        with place.app(windowed()) as other:
            until(lambda: len(app.metrics()["tasks"]) == len(other.metrics()["tasks"]) == 1)
            assert app.metrics()["late-records-total"] == app.metrics()["dropped-records-total"] == 4
            assert other.metrics()["late-records-total"] == 0
    # Once, not for every one of them; twice if the first look came between the two tasks.
    said = [line for line in caplog.messages if "late for step 'counting' (store counts)" in line]
    assert len(said) in (1, 2)
    assert sum(int(line.partition(" ")[0]) for line in said) == 4
