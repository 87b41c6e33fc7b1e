"""Faults under a running worker: each ends in recovery or in a stop that says what happened, and nothing is lost."""

import re
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from headwater import TopologyError
from headwater.dsl.config import ErrorContext, ErrorResponse
from headwater.state.rocks import RocksBackend
from headwater.streams.connection import Undone
from headwater.streams.kafka.writer import Writer
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.place import Place, failed
from tests.kafka.reading import end, records, settle
from tests.kafka.service import Service

KEYS = ["ann", "bob", "cid"] * 5
SHORT = {"transaction.timeout.ms": "2000"}


# Text that is longer than a topic with so many bytes per batch takes.
SMALL = {"max_message_bytes": "2000"}
LONG = b'"' + b"x" * 5_000 + b'"'


@pytest.fixture
def place(kafka: Broker, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path)


def test_a_broker_that_is_away_for_longer_than_a_transaction_may_last(broker: Broker, tmp_path: Path) -> None:
    place = Place(broker, tmp_path / "state")
    with place.app(place.regrouping()) as app:
        place.send(KEYS)
        app.wait_idle()
        place.broker.kill()
        # A transaction lasts no longer than half of this.
        time.sleep(20)
        place.broker.start()
        place.send(KEYS)
        place.await_counts({"x": 30})
        app.wait_idle()


def test_rows_that_are_found_damaged_while_a_worker_runs_are_restored(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with place.app() as app:
        place.send(KEYS)
        app.wait_idle()
    read, met = RocksBackend.get_many, []

    def spoiled(self: RocksBackend, store: str, keys: list[bytes]) -> list[bytes | None]:
        if store == "counts" and not met:
            met.append(self.path)
            raise self._damaged(store, Exception("Corruption: block checksum mismatch"))
        return read(self, store, keys)

    monkeypatch.setattr(RocksBackend, "get_many", spoiled)
    # No handler may pass over it: what is wrong is not the record.
    with place.app(on_processing_error="skip") as app:
        place.send(KEYS)
        place.await_counts({"ann": 10, "bob": 10, "cid": 10})
        app.wait_idle()
        assert app.metrics()["dropped-records-total"] == 0
    assert met
    assert "deleted and fetched anew: it is damaged" in caplog.text


@pytest.mark.parametrize("which", ["in", "again-repartition", "counts-changelog"])
def test_a_topic_that_is_deleted_under_a_worker_stops_it_by_name(place: Place, which: str) -> None:
    topic = place.own(which)
    app = place.app(place.regrouping(), kafka=SHORT).start()
    place.send(KEYS)
    app.wait_idle()
    place.delete(topic)
    assert re.match(rf"{topic}: deleted while the application ran", failed(app))


def test_a_sink_that_is_deleted_under_a_worker_and_made_again_gets_the_rest(place: Place) -> None:
    app = place.app(kafka=SHORT).start()
    place.send(KEYS)
    app.wait_idle()
    place.delete(place.sink)
    place.send(KEYS)
    assert re.match(rf"{place.sink}: deleted while the application ran; create it again", failed(app))
    place.broker.create(place.sink)
    with place.app() as app:
        app.wait_idle()
    assert place.counts() == {"ann": [*range(6, 11)], "bob": [*range(6, 11)], "cid": [*range(6, 11)]}


def test_a_source_made_anew_is_read_from_its_beginning(place: Place) -> None:
    with place.app() as app:
        place.send(KEYS)
        app.wait_idle()
    place.delete(place.source)
    place.broker.create(place.source)
    place.send(["ann"])
    with place.app() as app:
        app.wait_idle()
    assert place.counts()["ann"] == [1, 2, 3, 4, 5, 6]


def test_a_changelog_made_anew_takes_what_was_kept_here_with_it_and_that_is_said(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.send(KEYS)
    with place.app() as app:
        app.wait_idle()
    place.delete(place.own("counts-changelog"))
    place.send(["ann"])
    with place.app() as app:
        app.wait_idle()
        assert app.store("counts").get("ann") == 1
    assert "the copy of task 0_0 is deleted and fetched anew: its changelogs no longer have" in caplog.text


def test_records_that_are_deleted_before_they_were_processed_stop_the_worker_by_name(place: Place) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def wait(value: str) -> str:
        began.set()
        goes_on.wait(PATIENCE)
        return value

    # It reads ahead a batch or two.
    app = place.app(place.counting(wait), kafka={"queued.min.messages": "1", "fetch.message.max.bytes": "1000"})
    app.start()
    for _ in range(10):
        place.send(["ann"], LONG)
    assert began.wait(PATIENCE)
    last = TopicPartition(place.source, 0, 10)
    admin = place.broker.admin()
    admin.delete_records([last])[last].result()
    goes_on.set()
    said = failed(app)
    assert f"{place.source}-0@" in said
    assert "is no longer there: retention has deleted records that were not processed" in said


def test_a_transaction_that_kafka_says_is_committed_and_loses_is_done_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step_on = Writer._try

    def lose(self: Writer, step: Any, offsets: Any, *arguments: object) -> None:
        if arguments:
            step_on(self, step, offsets, *arguments)
        else:
            producer = self.open()
            producer.flush()
            producer.abort_transaction()

    place.send(KEYS)
    with monkeypatch.context() as patches:
        patches.setattr(Writer, "_try", lose)
        with place.app() as app:
            app.wait_idle()
            assert app.store("counts").get("ann") == 5
    assert place.counts() == {}
    with place.app() as app:
        app.wait_idle()
        assert app.store("counts").get("ann") == 5
    assert "task 0_0 is deleted and fetched anew: it has read on from the group's offsets" in caplog.text
    assert place.counts()["ann"] == [1, 2, 3, 4, 5]


def test_an_expired_transaction_is_done_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = Writer._send
    held: list[Any] = []

    def hold(self: Writer, producer: Any, records: Any) -> None:
        send(self, producer, records)
        if not held:
            held.append(producer)
            producer.flush(PATIENCE)
            # Begun and over: how long it was open is the broker's affair.
            settle(place.broker, place.sink)

    monkeypatch.setattr(Writer, "_send", hold)
    with place.app(kafka={"transaction.timeout.ms": "1000"}) as app:
        place.send(KEYS)
        place.await_counts({"ann": 5, "bob": 5, "cid": 5})
        app.wait_idle()
    assert held
    assert "a commit has failed" in caplog.text


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_record_that_a_topic_is_too_small_for_stops_the_worker_by_name(
    kafka: Broker, tmp_path: Path, exactly_once: bool
) -> None:
    place = Place(kafka, tmp_path, **SMALL)
    app = place.app(place.copying(), exactly_once=exactly_once).start()
    place.send(["ann"])
    place.send(["bob"], LONG)
    said = failed(app)
    assert f"could not write a result of {place.source}-0@1" in said
    assert f"a record of 5,005 bytes is larger than the topic '{place.sink}' takes, 1,930" in said


def test_a_record_that_a_topic_is_too_small_for_is_skipped_or_put_aside(kafka: Broker, tmp_path: Path) -> None:
    place = Place(kafka, tmp_path, **SMALL)
    letters = kafka.create(place.own("letters"))
    asked = []

    def respond(context: ErrorContext) -> ErrorResponse:
        asked.append((context.kind, context.offset))
        return "skip" if context.key == "ann" else "dead-letter"

    with place.app(place.copying(), on_production_error=respond, dead_letters=letters) as app:
        place.send(["ann", "bob"], LONG)
        place.send(["ann", "bob"])
        app.wait_idle()
    assert asked == [("production", 0), ("production", 1)]
    assert place.out() == {"ann": [b'"x"'], "bob": [b'"x"']}
    assert place.out(letters) == {"bob": [LONG]}


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_topic_that_has_become_too_small_stops_the_worker_by_name(
    kafka: Broker, tmp_path: Path, exactly_once: bool
) -> None:
    place = Place(kafka, tmp_path)
    app = place.app(place.copying(), exactly_once=exactly_once).start()
    place.send(["ann"])
    app.wait_idle()
    place.alter(place.sink, **SMALL)
    place.send(["bob"], LONG)
    said = failed(app)
    assert f"a record is larger than its topic takes ({place.sink}-0: Broker: Message size too large" in said
    assert place.out() == {"ann": [b'"x"']}


def test_many_small_records_go_to_a_topic_that_takes_little_at_once(kafka: Broker, tmp_path: Path) -> None:
    place = Place(kafka, tmp_path, **SMALL)
    with place.app(place.copying()) as app:
        place.send(["ann"] * 2_000)
        app.wait_idle()
    assert place.out() == {"ann": [b'"x"'] * 2_000}


def test_commits_that_are_further_apart_than_a_transaction_may_last_are_refused(place: Place) -> None:
    with pytest.raises(TopologyError, match="commit_interval is 5000 ms, but Kafka ends a transaction after 2000 ms"):
        place.app(commit_interval=timedelta(seconds=5), kafka=SHORT).start()
    with place.app(commit_interval=timedelta(seconds=5), kafka=SHORT, exactly_once=False) as app:
        place.send(KEYS)
        app.wait_idle()


@pytest.fixture
def poisoned(place: Place) -> Place:
    """A record that is no JSON stands between others."""
    place.send(["ann"])
    place.send(["bob"], b"{broken")
    place.send(["ann"])
    return place


def test_a_record_that_cannot_be_read_stops_the_worker_by_its_place(poisoned: Place) -> None:
    said = failed(poisoned.app().start())
    assert f"could not read {poisoned.source}-0@1" in said
    poisoned.await_counts({})
    # Started again it comes to the same record; told to pass it over it goes on.
    assert f"could not read {poisoned.source}-0@1" in failed(poisoned.app().start())
    with poisoned.app(on_deserialization_error="skip") as app:
        app.wait_idle()
        assert app.metrics()["dropped-records-total"] == 1
    poisoned.await_counts({"ann": 2})


def test_a_dead_letter_is_written_once_with_the_commit_it_belongs_to(
    poisoned: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = poisoned.broker.create(poisoned.own("letters"))
    send = Writer._send
    failures: list[Undone] = []

    def fail_once(self: Writer, producer: Any, records: Any) -> None:
        send(self, producer, records)
        if not failures:
            producer.flush(PATIENCE)
            failures.append(Undone("on purpose"))
            raise failures[0]

    monkeypatch.setattr(Writer, "_send", fail_once)
    with poisoned.app(on_deserialization_error="dead-letter", dead_letters=letters) as app:
        app.wait_idle()
    (letter,) = records(poisoned.broker, letters)
    assert (letter.key(), letter.value(), letter.timestamp()[1]) == (b"bob", b"{broken", 1000)
    headers = dict(letter.headers() or [])
    assert headers["__streams.errors.topic"] == poisoned.source.encode()
    assert headers["__streams.errors.offset"] == b"1"
    # Both attempts, and the ends of their transactions.
    assert end(poisoned.broker, letters, committed=True) >= 3
    poisoned.await_counts({"ann": 2})


def test_a_full_disk_stops_the_worker_and_loses_nothing(place: Place, tmp_path: Path) -> None:
    service = Service(place.plot, tmp_path / "log")
    place.send(KEYS)
    assert service.ask("wait_idle") is None
    service.ask("limit", 20_000)
    many = [f"key-{number}" for number in range(2_000)]
    place.send(many)
    said = service.ask("wait_idle")
    assert re.search(rf"StateError.*{tmp_path}.*cannot be written.*Make room there, and start again", said)
    service.kill()
    # What is missing is fetched, which needs room too.
    service = Service(place.plot, tmp_path / "log", limit=20_000)
    assert re.search(rf"StateError.*{tmp_path}.*cannot be", service.ask("wait_idle"))
    service.kill()
    with place.app() as app:
        app.wait_idle()
        assert app.store("counts").get("ann") == 5
        assert app.store("counts").get("key-1999") == 1
    place.await_counts({"ann": 5, "bob": 5, "cid": 5} | dict.fromkeys(many, 1))
