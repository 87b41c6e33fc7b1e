"""`headwater reset --stream-time`: the way back from a record of the year 9999, on the embedded log and on Kafka."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Consumer, Producer
from headwater.streams.broker import is_kafka
from headwater.streams.cli.app_file import load_app
from headwater.streams.run import open_app, state_directory
from tests.brokers import BOTH
from tests.cli.conftest import Command, settings
from tests.cli.services import write

APP = """
    from datetime import timedelta
    from headwater import StreamsBuilder, TimeWindows

    builder = StreamsBuilder()
    grouped = builder.stream("words").group_by(lambda key, value: value, name="again")
    minutes = grouped.windowed_by(TimeWindows.of(timedelta(minutes=1), grace=timedelta(minutes=1)))
    minutes.count(store="minutes").to_stream().map(lambda key, value: (key.key, value)).to("counted")
    topology = builder.build()
"""
YEAR_9999 = 253402300799999
MINUTE, HOUR = 60_000, 3_600_000


class Words:
    """The application, run until all is processed, and what it has counted since it was last asked."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.path = write(folder, text=APP)
        self.broker = broker
        self._seen = 0
        admin = Admin(broker)
        for topic in ("words", "counted"):
            admin.create_topic(topic, 1)
        if is_kafka(broker):
            # Its brokers refuse such records unless they are told otherwise, and the application's own topics are made
            # when it starts.
            self.run()
            for info in admin.topics():
                admin.alter_topic(info.name, kafka={"message.timestamp.after.max.ms": str(2**63 - 1)})
        self.minute = time.time_ns() // 1_000_000 // MINUTE * MINUTE

    def run(self, *times: int) -> tuple[list[int], int]:
        """Results, and records that were late, of records at these times."""
        with Producer(self.broker) as producer:
            for at in times:
                producer.send("words", key="k", value='"tea"', timestamp=at)
        topology, stem = load_app(self.path)
        with open_app(topology, settings([], {"app_id": stem}), self.broker) as app:
            app.wait_idle(120)
            late = sum(task["late-records-total"] for task in _steps(app.metrics()))
        with Consumer(self.broker, "counted") as consumer:
            records = []
            while batch := consumer.poll(1000):
                records += batch
        new, self._seen = records[self._seen :], len(records)
        return [int(record.value or b"") for record in new], late

    def forget_state(self) -> None:
        shutil.rmtree(state_directory(settings([], {"app_id": "words"}), self.broker) / "slots")


def _steps(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for task in metrics["tasks"].values() for step in task["steps"].values()]


@pytest.fixture
def words(folder: Path, broker: str) -> Words:
    return Words(folder, broker)


@BOTH
def test_after_a_record_of_the_year_9999_new_ones_count_again(words: Words, headwater: Command) -> None:
    now = words.minute
    assert words.run(now, now + 1, YEAR_9999) == ([1, 2, 1], 0)
    # The fault: late, also after a restart.
    assert words.run(now + 2, now + 3) == ([], 2)
    shown = headwater("reset", words.path, "--stream-time", "--dry-run")
    assert shown.code == 0, shown.err
    assert "9999-12-31T23:59:59.999Z" in shown.text
    assert "nothing was changed" in shown.text
    assert words.run(now + 4) == ([], 1)
    found = headwater("reset", words.path, "--stream-time", "--json").json
    assert found["done"]
    assert max(found["stream-times"].values()) == YEAR_9999
    # The window's rows had expired when time leapt: they stay gone, and new records count.
    # They are ahead of the wall clock, to which stream time was set back, however long all this takes.
    new = now + 20 * MINUTE
    assert words.run(new, new + 1) == ([1, 2], 0)
    assert words.run(new + 2) == ([3], 0)
    if is_kafka(words.broker):
        # Restored from changelogs alone, in which the window of the year 9999 still is.
        words.forget_state()
        assert words.run(new + 3) == ([4], 0)


@BOTH
def test_records_that_wait_are_not_late_after_stream_time_is_set_back(words: Words, headwater: Command) -> None:
    old = words.minute - 5 * HOUR
    assert words.run(old, YEAR_9999) == ([1, 1], 0)
    with Producer(words.broker) as producer:
        for at in (old + MINUTE, old + MINUTE + 1, old + 3 * HOUR):
            producer.send("words", key="k", value='"tea"', timestamp=at)
    found = headwater("reset", words.path, "--stream-time", "--yes")
    assert found.code == 0, found.err
    assert "will go on from there" in found.text
    assert words.run() == ([1, 2, 1], 0)


def test_stream_time_is_set_back_to_a_time(words: Words, headwater: Command) -> None:
    now = words.minute
    words.run(now, YEAR_9999)
    found = headwater("reset", words.path, "--stream-time", str(now), "--json").json
    assert found["to"] == now
    assert words.run(now - 5 * MINUTE, now) == ([1], 1)
    assert abs(headwater("reset", words.path, "--stream-time", "now", "--json").json["to"] - now) < HOUR


def test_what_cannot_be_set_back_is_told(words: Words, headwater: Command) -> None:
    assert "there is no stream time to set back" in headwater("reset", words.path, "--stream-time", "--yes").err
    words.run(words.minute)
    refused = headwater("reset", words.path, "--stream-time", "--topic", "words", "--yes")
    assert "for the whole application" in refused.err
    assert "confirm with --yes" in headwater("reset", words.path, "--stream-time").err
    assert headwater("reset", words.path, "--stream-time", "--to-latest").code == 2
    topology, stem = load_app(words.path)
    with open_app(topology, settings([], {"app_id": stem}), words.broker):
        assert "live worker: stop it first" in headwater("reset", words.path, "--stream-time", "--yes").err


def test_a_task_that_goes_on_far_in_the_future_warns(words: Words, caplog: pytest.LogCaptureFixture) -> None:
    words.run(YEAR_9999)
    caplog.clear()
    words.run()
    said = [record.getMessage() for record in caplog.records if "headwater reset --stream-time" in record.getMessage()]
    assert any("task 0_0: stream time is at 9999-12-31T23:59:59.999Z" in text for text in said)
