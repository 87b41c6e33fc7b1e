"""Several workers: who has a key, who may speak for it, and what a copy may say."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headwater import KeyValue, Processor, StreamsBuilder, Topology
from headwater.state.memory import MemoryBackend
from headwater.streams.app import App
from headwater.streams.http.server import listening
from headwater.streams.routing import task_of
from tests.streams.apps import Place, until
from tests.streams.asking import ADDRESS, Known, Peer, ask

KEYS = [f"k{number:02}" for number in range(24)]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[tuple[App, App]]:
    """Two workers that share four tasks."""
    place = Place(tmp_path, partitions=4)
    place.send(*KEYS)
    with place.app() as first, place.app() as second:
        until(lambda: len(first.metrics()["tasks"]) == len(second.metrics()["tasks"]) == 2)
        first.wait_idle()
        second.wait_idle()
        yield first, second


def tasks_of(app: App) -> tuple[str, ...]:
    return app.look(lambda worker: tuple(sorted(worker.tasks)))


def split(app: App) -> tuple[list[str], list[str]]:
    """The keys that a worker has, and those that it has not."""
    here = tasks_of(app)
    home = app.look(lambda worker: {key: task_of(worker.plan, "counts", key) for key in KEYS})
    return [key for key in KEYS if home[key] in here], [key for key in KEYS if home[key] not in here]


def test_who_does_not_have_the_key_names_who_has(shared: tuple[App, App]) -> None:
    first, second = shared
    known = Known("one", [Peer("one", None, tasks_of(first)), Peer("two", None, tasks_of(second))])
    with (
        listening(first, ADDRESS, app_id="app", places=lambda: known) as one,
        listening(second, ADDRESS, app_id="app") as two,
    ):
        known.peers[1].endpoint = two
        here, there = split(first)
        assert here
        assert there
        for key in here:
            answer = ask(one, "/stores/counts/get", key=json.dumps(key))
            assert (answer.status, [row["key"] for row in answer.json["rows"]]) == (200, [key])
        for key in there:
            answer = ask(one, "/stores/counts/get", key=json.dumps(key), limit=5)
            assert (answer.status, answer.json["endpoint"], answer.json["worker"]) == (421, two, "two")
            location = urlsplit(answer.headers["Location"])
            followed = ask(f"http://{location.netloc}", f"{location.path}?{location.query}")
            assert (followed.status, [row["key"] for row in followed.json["rows"]]) == (200, [key])
        # Not sent on when it is asked for what it has; it says what is missing.
        told = ask(one, "/stores/counts/get", key=json.dumps(there[0]), here="1").json
        assert (told["rows"], told["missing"]) == ([], list(tasks_of(second)))
        told = ask(one, "/stores/counts/all").json
        assert [row["key"] for row in told["rows"]] == here
        assert told["missing"] == list(tasks_of(second))
        assert [peer["worker"] for peer in ask(one, "/workers").json] == ["one", "two"]


def test_who_knows_of_no_other_says_so(shared: tuple[App, App]) -> None:
    first, _ = shared
    _, there = split(first)
    with listening(first, ADDRESS, app_id="app") as url:
        answer = ask(url, "/stores/counts/get", key=json.dumps(there[0]))
        assert (answer.status, "Location" in answer.headers) == (421, False)
        assert "which one is not known" in answer.error


def test_an_owner_that_does_not_listen(shared: tuple[App, App]) -> None:
    first, second = shared
    _, there = split(first)
    known = Known("one", [Peer("one", None, tasks_of(first)), Peer("two", None, tasks_of(second))])
    with listening(first, ADDRESS, app_id="app", places=lambda: known) as url:
        answer = ask(url, "/stores/counts/get", key=json.dumps(there[0]))
        assert (answer.status, "Location" in answer.headers) == (421, False)
        assert "worker two runs it, but answers no questions" in answer.error


def test_a_task_on_its_way(shared: tuple[App, App]) -> None:
    first, second = shared
    _, there = split(first)
    behind = dict.fromkeys(tasks_of(second), 7)
    known = Known("one", [Peer("one", None, tasks_of(first)), Peer("two", "http://two:1", (), behind)])
    with listening(first, ADDRESS, app_id="app", places=lambda: known) as url:
        answer = ask(url, "/stores/counts/get", key=json.dumps(there[0]))
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert "is on its way to a worker" in answer.error
        assert answer.json["copies"] == [{"worker": "two", "endpoint": "http://two:1", "lag": 7}]
        # A copy will do: who has one is named.
        answer = ask(url, "/stores/counts/get", key=json.dumps(there[0]), stale="ok")
        assert (answer.status, answer.json["endpoint"]) == (421, "http://two:1")
        assert answer.headers["Location"].startswith("http://two:1/stores/counts/get?")
        assert "stale=ok" in answer.headers["Location"]


def test_a_worker_does_not_speak_for_what_another_has_taken_over(shared: tuple[App, App]) -> None:
    first, _ = shared
    here, _ = split(first)
    known = Known("one", [Peer("two", "http://two:1", tasks_of(first))])
    with listening(first, ADDRESS, app_id="app", places=lambda: known) as url:
        answer = ask(url, "/stores/counts/get", key=json.dumps(here[0]))
        assert (answer.status, answer.json["endpoint"]) == (421, "http://two:1")
        assert ask(url, "/stores/counts/all").json["rows"] == []


def test_a_worker_out_of_touch_does_not_speak_at_all(shared: tuple[App, App]) -> None:
    first, _ = shared
    here, _ = split(first)
    known = Known("one", [Peer("one", None, tasks_of(first))], touch=False)
    with listening(first, ADDRESS, app_id="app", places=lambda: known) as url:
        answer = ask(url, "/stores/counts/get", key=json.dumps(here[0]))
        assert answer.status == 503
        assert "has not heard from Kafka for a while" in answer.error
        told = ask(url, "/stores/counts/all").json
        assert (told["rows"], len(told["missing"])) == ([], 4)
        known.touch = True
        assert ask(url, "/stores/counts/get", key=json.dumps(here[0])).status == 200


@dataclass
class Copy:
    backend: MemoryBackend
    lag: int


def copied(app: App, lag: int) -> dict[str, Copy]:
    """Copies of the tasks that a worker runs."""

    def copy(worker: Any) -> dict[str, Copy]:
        found = {}
        for task_id, running in worker.tasks.items():
            stores = running.spec.backend_stores()
            backend = MemoryBackend(stores)
            backend.write({store: dict(running.backend.scan(store, b"", None)) for store in stores})
            found[task_id] = Copy(backend, lag)
        return found

    return app.look(copy)


def test_a_copy_answers_only_when_asked_to(shared: tuple[App, App]) -> None:
    first, second = shared
    _, there = split(first)
    known = Known("one", [Peer("one", None, tasks_of(first)), Peer("two", "http://two:1", tasks_of(second))])
    copies = copied(second, 12)
    first.look(lambda worker: setattr(worker._connection, "standbys", copies))
    with listening(first, ADDRESS, app_id="app", places=lambda: known) as url:
        assert ask(url, "/stores/counts/get", key=json.dumps(there[0])).status == 421
        answer = ask(url, "/stores/counts/get", key=json.dumps(there[0]), stale="ok")
        assert (answer.status, [row["key"] for row in answer.json["rows"]]) == (200, there[:1])
        assert answer.headers["Headwater-Lag"] == "12"
        assert list(answer.json["stale"].values()) == [12]
        told = ask(url, "/stores/counts/all", stale="ok").json
        assert [row["key"] for row in told["rows"]] == KEYS
        assert (told["stale"], told["missing"]) == (dict.fromkeys(tasks_of(second), 12), [])
        # What runs here is not stale, whoever asks.
        fresh = ask(url, "/stores/counts/all", stale="ok", tasks=",".join(tasks_of(first)))
        assert ("stale" in fresh.json, "Headwater-Lag" in fresh.headers) == (False, False)


def test_a_copy_says_nothing_of_rows_that_it_does_not_follow(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.table("in", store="counts")
    place = Place(tmp_path)
    place.send("a")
    with place.app(builder.build(optimize=True)) as app:
        app.wait_idle()
        copies = copied(app, 0)
        app.look(lambda worker: setattr(worker._connection, "standbys", copies))
        known = Known("one", [Peer("two", None, ()), Peer("three", "http://three:1", (), {"0_0": 0})], touch=False)
        with listening(app, ADDRESS, app_id="app", places=lambda: known) as url:
            assert ask(url, "/stores/counts/get", key='"a"', stale="ok").status == 503


class Keep(Processor):
    def process(self, record: Any) -> None:
        self.context.store("counts").put(record.key, record.value)


def test_where_nobody_can_know_all_are_asked(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=2)
    place.send(*KEYS)
    kept = Topology().add_source("in", "in").add_processor("keep", Keep, "in").add_store(KeyValue("counts"), "keep")
    with place.app(kept) as first, place.app(kept) as second:
        until(lambda: len(tasks_of(first)) == len(tasks_of(second)) == 1)
        first.wait_idle()
        with listening(first, ADDRESS, app_id="app") as url:
            answers = [ask(url, "/stores/counts/get", key=json.dumps(key)) for key in KEYS]
    assert {answer.status for answer in answers} == {200}
    assert {len(answer.json["missing"]) for answer in answers} == {1}
    assert 0 < sum(len(answer.json["rows"]) for answer in answers) < len(KEYS)
