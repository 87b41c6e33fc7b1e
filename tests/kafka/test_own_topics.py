"""What a worker makes, checks and tidies up: its topics, its rights and its state directory."""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from headwater import SessionWindows, StreamsBuilder, StreamsError, TimeWindows, Topology, TopologyError, Versioned
from headwater.state.rocks import RocksBackend
from headwater.streams.app import App
from headwater.streams.kafka import connection, copies
from headwater.streams.run import open_app
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.place import Place
from tests.kafka.reading import start
from tests.kafka.secured import NAME, PASSWORD, SecuredBroker
from tests.streams.apps import until

KEYS = ["ann", "bob", "cid"] * 5
ALL = {"ann": 5, "bob": 5, "cid": 5}
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def place(kafka: Broker, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path)


# ---- topics --------------------------------------------------------------------------------------------------------


def test_topics_have_the_settings_that_state_and_event_time_need(place: Place) -> None:
    builder = StreamsBuilder()
    stream = builder.stream(place.source).group_by(lambda key, value: value, name="again")
    stream.count(store="counts")
    stream.windowed_by(TimeWindows.of(timedelta(minutes=5), grace=timedelta(minutes=1))).count(store="windows")
    stream.windowed_by(SessionWindows.of(timedelta(minutes=5), grace=timedelta(minutes=2))).count(store="sessions")
    builder.table(place.own("users"), store=Versioned("versions", retention=timedelta(hours=1)))
    place.broker.create(place.own("users"))
    with place.app(builder.build()) as app:
        app.wait_idle()
    # Windows too: brokers would delete them by the clock, whatever stream time is.
    for topic in ("counts-changelog", "operators-1-changelog", "windows-changelog", "sessions-changelog"):
        assert place.settings(topic)["cleanup.policy"] == "compact"
        assert place.settings(topic)["min.compaction.lag.ms"] == "0"
    assert place.settings("versions-changelog")["cleanup.policy"] == "compact"
    assert int(place.settings("versions-changelog")["min.compaction.lag.ms"]) == 3_600_000 + DAY_MS
    assert place.settings("again-repartition")["cleanup.policy"] == "delete"
    assert place.settings("again-repartition")["retention.ms"] == "-1"
    for topic in ("counts-changelog", "windows-changelog", "again-repartition", "workers", "operators-0-changelog"):
        assert place.settings(topic)["message.timestamp.type"] == "CreateTime"


@pytest.fixture
def wakeful(tmp_path: Path) -> Iterator[Broker]:
    """A broker that looks twice a second for what has expired."""
    often = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
    broker = Broker(tmp_path / "wakeful", often).start()
    yield broker
    broker.kill()


def test_open_windows_of_long_ago_survive_a_worker_that_is_replaced(wakeful: Broker, tmp_path: Path) -> None:
    """As in a backfill. The changelog is one of an earlier release, which had it forget by the clock."""
    place = Place(wakeful, tmp_path)
    forgetful = {"cleanup_policy": "compact,delete", "retention_ms": str(DAY_MS)}
    for topic in ("windows-changelog", "sessions-changelog", "control"):
        wakeful.create(place.own(topic), **forgetful)

    def counting() -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(place.source).group_by_key()
        windows, sessions = TimeWindows.of(timedelta(minutes=5)), SessionWindows.of(timedelta(minutes=5))
        stream.windowed_by(windows).count(store="windows").to_stream().map(lambda key, n: ("windows", n)).to(place.sink)
        counts = stream.windowed_by(sessions).count(store="sessions").to_stream()
        counts.filter(lambda key, n: n is not None).map(lambda key, n: ("sessions", n)).to(place.sink)
        return builder.build()

    settings = {"exactly_once": False, "commit_interval": timedelta(milliseconds=100)}
    with place.app(counting(), state_dir=tmp_path / "one", **settings) as app:
        place.send(["ann"] * 3)
        until(lambda: len(place.out().get("sessions", ())) == 3, PATIENCE)
        app.wait_idle()
    # What a topic of that kind has is deleted by now.
    producer = Producer({"bootstrap.servers": wakeful.bootstrap})
    producer.produce(place.own("control"), b"v", b"k", timestamp=1000)
    assert producer.flush(PATIENCE) == 0
    until(lambda: start(wakeful, place.own("control")) == 1, PATIENCE)
    with place.app(counting(), state_dir=tmp_path / "two", **settings):
        place.send(["ann"])
        until(lambda: len(place.out().get("sessions", ())) == 4, PATIENCE)
        until(lambda: len(place.out().get("windows", ())) == 4, PATIENCE)
    assert place.out() == {name: [b"1", b"2", b"3", b"4"] for name in ("windows", "sessions")}


def test_records_of_internal_topics_go_when_they_are_processed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PURGE_SECONDS", 0.2)
    with place.app(place.regrouping()) as app:
        for _ in range(4):
            place.send(KEYS)
            app.wait_idle()
            time.sleep(0.3)
        until(lambda: start(place.broker, place.own("again-repartition")) >= 45)
        # The input is others' affair.
        assert start(place.broker, place.source) == 0
    place.await_counts({"x": 60})


def test_what_is_missing_is_told_all_at_once_before_anything_runs(place: Place) -> None:
    builder = StreamsBuilder()
    builder.stream("no-such-input").to(place.sink)
    builder.stream("nor-this").to(place.sink)
    with pytest.raises(TopologyError) as raised:
        place.app(builder.build()).start()
    assert "'no-such-input' of source" in str(raised.value)
    assert "'nor-this' of source" in str(raised.value)
    builder = StreamsBuilder()
    builder.stream(place.source).to("no-such-output")
    with pytest.raises(TopologyError, match="'no-such-output', which results are written to, does not exist"):
        place.app(builder.build()).start()
    assert not [topic for topic in place.topics() if topic not in (place.source, place.sink)]


def test_partition_counts_that_do_not_fit_are_refused(place: Place) -> None:
    wide = place.broker.create(place.own("wide"), 3)
    builder = StreamsBuilder()
    table = builder.table(wide)
    builder.stream(place.source).join(table, lambda left, right: left).to(place.sink)
    with pytest.raises(TopologyError, match=f"{wide}.*3"):
        place.app(builder.build()).start()
    place.broker.create(place.own("counts-changelog"), 2)
    with pytest.raises(TopologyError, match="it had 2 tasks and now has 1, one for each partition"):
        place.app().start()


# ---- rights ----------------------------------------------------------------------------------------------------------


class GuardedBroker(SecuredBroker):
    """A broker that asks who may do what; those who come by its plain door may do everything."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        with self._properties.open("a") as properties:
            properties.write(f"authorizer.class.name={authorizer}\nsuper.users=User:ANONYMOUS\n")

    def grant(self, app_id: str, *operations: AclOperation) -> None:
        """Let the client do things to all that begins with an application's id: topics, group and transactions."""
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        prefixed, allow = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
        bindings = [
            AclBinding(kind, app_id, prefixed, f"User:{NAME}", "*", operation, allow)
            for kind in kinds
            for operation in operations
        ]
        admin = self.admin()
        for future in admin.create_acls(bindings).values():
            future.result()
        # The controller has decided it; the broker hears of it a little later.
        theirs = (ResourceType.ANY, app_id, prefixed, f"User:{NAME}", "*", AclOperation.ANY, AclPermissionType.ANY)
        until(lambda: set(bindings) <= set(admin.describe_acls(AclBindingFilter(*theirs)).result()))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    broker = GuardedBroker(tmp_path_factory.mktemp("guarded")).start()
    yield broker
    broker.kill()


def test_missing_rights_are_told_before_anything_runs_and_secrets_never(
    guarded: GuardedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(guarded, tmp_path)
    place.send(KEYS)

    def app(**settings: str) -> App:
        config = place.config(kafka=guarded.settings | settings)
        return open_app(place.counting(), config, f"kafka://{guarded.secured}")

    def refusal(**settings: str) -> str:
        with pytest.raises(StreamsError) as raised:
            app(**settings).start()
        return str(raised.value)

    caplog.set_level(logging.DEBUG)
    # Topics that may not be seen are not there.
    nothing = refusal()
    assert f"topic '{place.source}' of source" in nothing
    guarded.grant(place.app_id, AclOperation.READ, AclOperation.DESCRIBE, AclOperation.CREATE)
    reading = refusal()
    for topic in (place.sink, place.own("counts-changelog"), place.own("workers")):
        assert f"this client may not write the topic '{topic}': grant it (kafka-acls)" in reading
    guarded.grant(place.app_id, AclOperation.WRITE, AclOperation.DELETE)
    with app() as running:
        running.wait_idle()
        metrics = repr(running.metrics())
    place.await_counts(ALL)
    wrong = refusal(**{"sasl.password": "wrong-Secret"})
    assert "Kafka does not let this client use anything: its name, password or certificate is wrong" in wrong
    stranger = refusal(**{"ssl.ca.location": guarded.settings["ssl.certificate.location"]})
    assert "Kafka does not let this client use anything: its certificate, or the authority" in stranger
    nowhere = refusal(**{"ssl.ca.location": str(tmp_path / "none.pem")})
    assert "Kafka's client does not take its settings" in nowhere
    said = "\n".join([caplog.text, nothing, reading, metrics, wrong, stranger, nowhere])
    assert PASSWORD not in said
    assert "wrong-Secret" not in said


# ---- state directories -----------------------------------------------------------------------------------------------


def test_a_database_of_another_topology_or_of_something_else_is_made_anew(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.send(KEYS)
    with place.app() as app:
        app.wait_idle()
    (database,) = place.folder.glob("apps/*/slots/0/tasks/0_0")
    shutil.rmtree(database)
    RocksBackend(database, ["another"]).close()
    with place.app() as app:
        app.wait_idle()
        assert app.store("counts").get("ann") == 5
    assert "the copy of task 0_0 is deleted and fetched anew" in caplog.text
    caplog.clear()
    (database / "CURRENT").write_text("nonsense")
    place.send(KEYS)
    with place.app() as app:
        app.wait_idle()
        assert app.store("counts").get("ann") == 10
    assert "the copy of task 0_0 is deleted and fetched anew" in caplog.text
    place.await_counts({"ann": 10, "bob": 10, "cid": 10})


def test_a_database_that_has_lain_about_for_long_is_made_anew(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.send(KEYS)
    with place.app() as app:
        app.wait_idle()
    (database,) = place.folder.glob("apps/*/slots/0/tasks/0_0")
    for file in database.iterdir():
        os.utime(file, (0, time.time() - copies.STALE_SECONDS - 60))
    with place.app() as app:
        app.wait_idle()
        assert app.store("counts").get("ann") == 5
        assert app.metrics()["restored-records-total"] >= 3
    assert "it has not been used for long" in caplog.text


def test_databases_of_tasks_that_run_elsewhere_are_deleted_in_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLEAN_SECONDS", 0.2)
    monkeypatch.setattr(copies, "KEEP_SECONDS", 60.0)
    tasks = place.folder / "apps" / place.app_id / "slots" / "0" / "tasks"
    for name, age in (("0_7", 120), ("0_8", 0)):
        RocksBackend(tasks / name, ["counts"]).close()
        for file in (tasks / name).iterdir():
            os.utime(file, (0, time.time() - age))
    with place.app() as app:
        app.wait_idle()
        until(lambda: not (tasks / "0_7").exists())
        assert sorted(path.name for path in tasks.iterdir()) == ["0_0", "0_8"]


def test_a_worker_started_where_nothing_was_restores_what_was_kept(place: Place) -> None:
    place.send(KEYS)
    with place.app() as app:
        app.wait_idle()
    shutil.rmtree(place.folder)
    place.send(KEYS)
    with place.app() as app:
        app.wait_idle()
        assert app.metrics()["restores-total"] == 1
    place.await_counts({"ann": 10, "bob": 10, "cid": 10})
    with place.app() as app:
        app.wait_idle()
        # What it has committed itself is there.
        assert app.metrics()["restored-records-total"] == 0
