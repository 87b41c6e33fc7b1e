"""The command line on Kafka, where it says more than on the embedded log, or deletes more. What is the same on both is
in tests/cli."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, Consumer, Producer
from headwater.streams.cli.app_file import load_app
from headwater.streams.run import open_app
from tests.brokers import empty_broker
from tests.cli.conftest import Command, folder, headwater, in_environment, settings
from tests.cli.services import write
from tests.streams.apps import until

__all__ = ["folder", "headwater"]

APP = """
    from headwater import StreamsBuilder

    builder = StreamsBuilder()
    counts = builder.stream("words").group_by(lambda key, value: key, name="again").count(store="counts")
    counts.to_stream().to("counted")
    topology = builder.build()
"""


@pytest.fixture(params=["kafka"])
def broker(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for address in empty_broker(request, folder):
        monkeypatch.setenv("HEADWATER_BROKER", address)
        yield address


def test_a_topics_life(headwater: Command) -> None:
    made = headwater(
        *("topics", "create", "orders", "--partitions", "2", "--retention", "30d", "--compression", "zstd"),
        *("--config", "max.message.bytes=5000", "--config", "min.insync.replicas=1"),
    )
    assert made.lines == ["orders is there: 2 partitions, cleanup by delete, kept 30d"]
    headwater("produce", "orders", "--timestamp", "5000", "--partition", "1", stdin=b"a\nb\n")
    assert headwater("topics", "list").lines == [
        "topic   partitions  cleanup  kept  copies",
        "orders           2  delete   30d        1",
    ]
    lines = headwater("topics", "describe", "orders").lines
    assert lines[:3] == ["orders", "  copies       1", "  cleanup      delete"]
    assert lines[-3:] == [
        "partition  start  end  leader  copies on  in sync  last record",
        "        0      0    0       1  1          1        -",
        "        1      0    2       1  1          1        1970-01-01T00:00:05.000Z",
    ]
    begun = headwater("log", "delete-records", "orders", "--partition", "1", "--before", "1")
    assert begun.lines == ["orders-1 begins now at 1"]
    assert headwater("consume", "orders").lines == ["b"]
    altered = headwater("topics", "alter", "orders", "--partitions", "3", "--compact", "--config", "segment.ms=60000")
    assert altered.lines == ["orders has now: 3 partitions, cleanup by compact, kept forever"]
    refused = headwater("topics", "alter", "orders", "--replication-factor", "1")
    assert "kafka-reassign-partitions" in refused.err
    assert "nothing to alter" in headwater("topics", "alter", "orders").err
    assert headwater("topics", "delete", "orders", "none", "--if-exists").lines == ["orders is deleted"]


def test_a_file_of_settings_beside_settings_of_a_topic(headwater: Command, folder: Path) -> None:
    (folder / "shop.toml").write_text('[kafka]\nclient.id = "shop"\n')
    both = ["--config", "shop.toml", "--config", "cleanup.policy=compact,delete"]
    assert headwater("topics", "create", "orders", *both).text.startswith(
        "orders is there: 1 partition, cleanup by comp"
    )
    (folder / "shop.toml").write_text('[kafka]\nclient.idd = "shop"\n')
    told = headwater("topics", "list", "--config", "shop.toml")
    assert "write client.id, or correct it" in told.err


def test_what_only_a_log_has_is_said_so(headwater: Command) -> None:
    for words in (["dump", "orders"], ["verify"]):
        told = headwater("log", *words)
        assert told.code == 1
        assert "is a Kafka cluster, and this needs an embedded log" in told.err


def test_one_that_follows_stops_when_told_and_commits_what_it_printed(
    headwater: Command, broker: str, folder: Path
) -> None:
    headwater("topics", "create", "orders")
    headwater("produce", "orders", stdin=b"0\n1\n")
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"
    words = ["consume", "orders", "--follow", "--group", "kitchen", "--broker", broker]
    command = [sys.executable, "-c", main, *words]
    # This checkout's code, and not another's that is installed.
    environment = in_environment(PYTHONPATH=str(Path(__file__).parents[2]))
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, env=environment) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"0\n", b"1\n"]
        # What is printed is noted a moment later.
        time.sleep(0.5)
        process.terminate()
        assert process.wait(30) == 130
    assert [at.committed for at in Admin(broker).describe_group("kitchen").offsets] == [2]
    assert Admin(broker).describe_group("kitchen").members == ()


def test_records_that_kafka_will_delete_are_told_of(headwater: Command, folder: Path) -> None:
    (folder / "old.jsonl").write_text('{"topic": "orders", "value": "x", "timestamp": 5000}\n')
    headwater("topics", "create", "orders", "--retention", "30d")
    told = headwater("log", "import", "old.jsonl")
    assert told.code == 0
    assert "orders: some records are older than its retention, and Kafka will delete them" in told.err


def test_secrets_are_never_shown(headwater: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_KAFKA_SSL_KEY_PASSWORD", "hunter3")
    (folder / "headwater.toml").write_text('[kafka]\nsasl.password = "hunter2"\nsasl.mechanism = "PLAIN"\n')
    for words in (
        ["topics", "list", "--set", "security.protocol=SASL_PLAINTEXT", "--set", "sasl.username=ann"],
        ["topics", "list", "--set", "security.protocol=NONSENSE"],
        ["topics", "list", "--set", "sasl.pasword=hunter4"],
        ["topics", "list", "--broker", "kafka://ann:hunter5@localhost:9092"],
    ):
        monkeypatch.setattr("headwater.streams.kafka.questions.ANSWER", 2.0)
        told = headwater(*words)
        assert told.code == 1, words
        assert "hunter" not in told.text + told.err, words


@pytest.fixture
def path(folder: Path, broker: str) -> str:
    admin = Admin(broker)
    admin.create_topic("words", 2)
    admin.create_topic("counted", 2)
    with Producer(broker) as producer:
        for word in ("tea", "milk", "tea"):
            producer.send("words", key=word, value='"x"', timestamp=1000)
    path = write(folder, text=APP)
    assert process_all(broker, path) == {"tea": 2, "milk": 1}
    await_results(broker, 3)
    return path


def process_all(broker: str, path: str) -> dict[str, int]:
    """Run the application until all is processed and return its counts."""
    topology, stem = load_app(path)
    with open_app(topology, settings([], {"app_id": stem}), broker) as app:
        app.wait_idle(60)
        return dict(app.store("counts").all())


def results(broker: str) -> int:
    with Consumer(broker, "counted") as consumer:
        return sum(len(found) for found in iter(consumer.poll, []))


def await_results(broker: str, count: int) -> None:
    """Wait for so many results, and no more: a commit is answered before its end is marked."""
    until(lambda: results(broker) >= count)
    assert results(broker) == count


def test_an_application_begins_anew(headwater: Command, broker: str, path: str, folder: Path) -> None:
    there = {info.name for info in Admin(broker).topics()}
    dry = headwater("reset", path, "--dry-run")
    assert dry.code == 0, dry.err
    assert "(nothing was changed: --dry-run)" in dry.text
    assert {info.name for info in Admin(broker).topics()} == there > {"words", "counted"}
    found = headwater("reset", path, "--json")
    assert found.code == 0, found.err
    assert set(found.json["topics"]) == there - {"words", "counted"}
    assert {"words-again-repartition", "words-counts-changelog", "words-workers"} <= set(found.json["topics"])
    assert [Path(state).name for state in found.json["state"]] == ["slots", "sockets"]
    assert {info.name for info in Admin(broker).topics()} == {"words", "counted"}
    assert Admin(broker).groups() == []
    assert not (folder / ".headwater" / "apps" / "words" / "slots").exists()
    assert process_all(broker, path) == {"tea": 2, "milk": 1}
    await_results(broker, 6)


def test_where_it_reads_from_and_who_may_not_be_alive(headwater: Command, broker: str, path: str) -> None:
    topology, stem = load_app(path)
    with open_app(topology, settings([], {"app_id": stem}), broker) as app:
        app.wait_idle(60)
        told = headwater("reset", path, "--yes")
        assert told.code == 1
        assert "Cannot reset the group 'words' while it has live members" in told.err
    told = headwater("reset", path, "--to-latest", "--topic", "nothing", "--yes")
    assert "does not read nothing: its inputs are words" in told.err
    found = headwater("reset", path, "--to-latest", "--json").json
    assert sum(at["after"] for at in found["offsets"]) == 3
    assert process_all(broker, path) == {}
