"""Questions to running workers, straight to the handler and through their sockets."""

import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import (
    Bytes,
    Config,
    Float64,
    Int64,
    Json,
    Producer,
    Serde,
    SessionWindows,
    Str,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    Topology,
    Versioned,
)
from headwater.streams.app import App
from headwater.streams.queries import Metrics, Query, State, Stores, answer
from headwater.streams.run import open_app
from headwater.streams.sockets import ask_all, query, serving
from tests.streams.apps import Place, counting, until


def every_kind() -> Topology:
    """A store of each kind that can be read, all fed from `in`, and a global table."""
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=10), grace=timedelta(hours=1))).count(store="windows")
    grouped.windowed_by(SessionWindows.of(timedelta(seconds=5), grace=timedelta(hours=1))).count(store="sessions")
    builder.table("users", store=Versioned("users", retention=timedelta(hours=1)))
    builder.global_table("names", store="names")
    return builder.build()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("log"), partitions=3, topics=("in", "users", "names"))
    with Producer(place.broker) as producer:
        for key, at in (("a", 1_000), ("b", 2_000), ("a", 3_000), ("a", 25_000)):
            producer.send("in", key=key, value='"x"', timestamp=at)
        for value, at in (("old", 10_000), ("new", 20_000)):
            producer.send("users", key="u", value=json.dumps(value), timestamp=at)
        producer.send("names", key="n", value='"Nora"', timestamp=1)
    return place


@pytest.fixture(scope="module")
def app(place: Place) -> Iterator[App]:
    with place.app(every_kind()) as app:
        app.wait_idle()
        yield app


def asked(app: App, **question: Any) -> Any:
    return json.loads(answer(app, json.dumps(question).encode()))


def rows(app: App, **question: Any) -> Any:
    found = asked(app, ask="query", **question)
    assert "ok" in found, found
    return [row for _, row in found["ok"]["rows"]]


A_0 = {"key": "a", "start": 0, "end": 10_000, "value": 2, "timestamp": 3_000}
A_20 = {"key": "a", "start": 20_000, "end": 30_000, "value": 1, "timestamp": 25_000}
B_0 = {"key": "b", "start": 0, "end": 10_000, "value": 1, "timestamp": 2_000}
SESSION = {"key": "a", "start": 1_000, "end": 3_000, "value": 2}
LAST_SESSION = {"key": "a", "start": 25_000, "end": 25_000, "value": 1}


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ({"store": "counts", "how": "get", "key": "a"}, [{"key": "a", "value": 3, "timestamp": 25_000}]),
        ({"store": "counts", "how": "get", "key": "z"}, []),
        ({"store": "counts", "how": "range", "lo": "b"}, [{"key": "b", "value": 1, "timestamp": 2_000}]),
        ({"store": "counts", "how": "range", "hi": "a"}, [{"key": "a", "value": 3, "timestamp": 25_000}]),
        ({"store": "windows", "how": "get", "key": "a", "start": 20_000}, [A_20]),
        ({"store": "windows", "how": "get", "key": "a", "start": 10_000}, []),
        ({"store": "windows", "how": "fetch", "key": "a"}, [A_0, A_20]),
        ({"store": "windows", "how": "fetch", "key": "a", "since": 1, "until": 20_000}, [A_20]),
        ({"store": "windows", "how": "all", "until": 0}, [A_0, B_0]),
        ({"store": "sessions", "how": "fetch", "key": "a"}, [SESSION, LAST_SESSION]),
        ({"store": "sessions", "how": "fetch", "key": "a", "since": 25_000}, [LAST_SESSION]),
        ({"store": "sessions", "how": "get", "key": "a", "start": 1_000, "end": 3_000}, [SESSION]),
        ({"store": "sessions", "how": "all", "since": 25_000}, [LAST_SESSION]),
        ({"store": "users", "how": "get", "key": "u"}, [{"key": "u", "value": "new", "timestamp": 20_000}]),
        (
            {"store": "users", "how": "get", "key": "u", "as_of": 15_000},
            [{"key": "u", "value": "old", "timestamp": 10_000}],
        ),
        ({"store": "users", "how": "all"}, [{"key": "u", "value": "new", "timestamp": 20_000}]),
        ({"store": "names", "how": "all"}, [{"key": "n", "value": "Nora", "timestamp": 1}]),
    ],
)
def test_rows_of_every_kind_of_store(app: App, question: dict[str, Any], found: list[Any]) -> None:
    assert rows(app, **question) == found


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"ask": "query", "store": "count", "how": "all"}, "there is no store 'count', only counts, names"),
        ({"ask": "query", "store": "counts", "how": "fetch", "key": "a"}, "which has no fetch, but get, range, all"),
        ({"ask": "query", "store": "windows", "how": "range"}, "which has no range, but get, fetch, all"),
        ({"ask": "query", "store": "windows", "how": "get", "key": "a"}, "say when it starts"),
        ({"ask": "query", "store": "sessions", "how": "get", "key": "a", "start": 1}, "when it starts and ends"),
        ({"ask": "query", "store": "counts", "how": "get"}, "needs a key"),
        ({"ask": "query", "store": "counts", "how": "get", "key": 7}, "7 is no key of 'counts', whose keys are Str()"),
        ({"ask": "query", "store": "counts", "how": "all", "limit": 0}, "limit must be at least 1"),
        ({"ask": "query", "store": "counts", "how": "drop"}, "Invalid enum value 'drop'"),
        ({"ask": "query", "store": "counts", "how": "all", "tpyo": 1}, "unknown field `tpyo`"),
        ({"ask": "what"}, "Invalid value 'what'"),
        ({}, "missing required field `ask`"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(app: App, question: dict[str, Any], error: str) -> None:
    found = asked(app, **question)
    assert error in found["error"]


def test_what_is_no_json_is_told_so(app: App) -> None:
    assert "no question" in json.loads(answer(app, b"\xff{"))["error"]


def test_limits_and_order(app: App) -> None:
    found = asked(app, ask="query", store="windows", how="all", limit=2)["ok"]
    assert [row for _, row in found["rows"]] == [A_0, A_20]
    assert found["more"] is True
    assert asked(app, ask="query", store="windows", how="all", limit=3)["ok"]["more"] is False


def test_state_stores_and_metrics(app: App) -> None:
    state = asked(app, ask="state")["ok"]
    assert (state["state"], state["pid"], state["error"]) == ("running", os.getpid(), None)
    stores = asked(app, ask="stores")["ok"]
    assert [(store["name"], store["kind"], store["global"]) for store in stores] == [
        ("counts", "timestamped", False),
        ("names", "timestamped", True),
        ("sessions", "session", False),
        ("users", "versioned", False),
        ("windows", "window", False),
    ]
    metrics = asked(app, ask="metrics")["ok"]
    assert metrics["records-total"] == 6
    assert len(metrics["tasks"]) == len(metrics["all-tasks"]) == 6


class Point(msgspec.Struct, frozen=True, order=True):
    x: int
    y: int


class Upside(Serde):
    """Text, backwards."""

    def encode(self, value: Any) -> bytes:
        return str(value)[::-1].encode()

    def decode(self, data: bytes) -> Any:
        return data.decode()[::-1]


@pytest.mark.parametrize(
    ("serde", "key", "as_json", "as_text"),
    [
        (Str(), "42", "42", "42"),
        (Int64(), 42, 42, "42"),
        (Float64(), 1.0, 1, "1"),
        (Bytes(), b"tea", "tea", "tea"),
        (Bytes(), b"\xff", {"base64": "/w=="}, None),
        (Json(), "tea", "tea", "tea"),
        (Json(), [1, "b"], [1, "b"], '[1, "b"]'),
        (Json(type=Point), Point(1, 2), {"x": 1, "y": 2}, '{"x": 1, "y": 2}'),
        (Upside(), "tea", "tea", "tea"),
    ],
)
def test_keys_as_json_and_as_text(tmp_path: Path, serde: Serde, key: Any, as_json: Any, as_text: str | None) -> None:
    place = Place(tmp_path)
    builder = StreamsBuilder(key=serde)
    builder.table("in", store="s")
    with Producer(place.broker) as producer:
        producer.send("in", key=serde.encode(key), value="1", timestamp=5)
    with place.app(builder.build()) as app:
        app.wait_idle()
        found = rows(app, store="s", how="get", key=as_json)
        assert [row["value"] for row in found] == [1]
        assert found[0]["key"] == (as_json if not isinstance(key, Point) else {"x": 1, "y": 2})
        if as_text is not None:
            assert rows(app, store="s", how="get", key=as_text, text=True) == found


def test_a_key_that_the_serde_refuses(tmp_path: Path) -> None:
    place = Place(tmp_path)
    builder = StreamsBuilder(key=Int64())
    builder.table("in", store="s")
    with place.app(builder.build()) as app:
        assert "'x' is no key of 's'" in asked(app, ask="query", store="s", how="get", key="x", text=True)["error"]


# ---- sockets -----------------------------------------------------------------------------------------------------


def test_all_workers_are_asked_and_their_rows_merged(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=4)
    keys = [f"k{n:02}" for n in range(30)]
    place.send(*keys)
    assert query(place.sockets, Query("counts", "all")) is None
    with place.app() as first, place.app() as second:
        until(lambda: len(first.metrics()["tasks"]) == len(second.metrics()["tasks"]) == 2)
        first.wait_idle()
        second.wait_idle()
        assert len(ask_all(place.sockets, State())) == 2
        found = query(place.sockets, Query("counts", "all"))
        assert found is not None
        assert ([row["key"] for row in found.rows], found.more, found.missing) == (keys, False, [])
        found = query(place.sockets, Query("counts", "all", limit=7))
        assert found is not None
        assert ([row["key"] for row in found.rows], found.more) == (keys[:7], True)
        for key in keys:
            found = query(place.sockets, Query("counts", "get", key=key))
            assert found is not None
            assert [row["value"] for row in found.rows] == [1]
        with pytest.raises(StreamsError, match="no store 'nothing'"):
            query(place.sockets, Query("nothing", "all"))
    assert ask_all(place.sockets, Metrics()) == {}
    assert list(place.sockets.iterdir()) == []


def test_a_global_table_is_not_told_twice(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=2, topics=("in", "users", "names"))
    place.send("n", topic="names", value="Nora")
    with place.app(every_kind()), place.app(every_kind()):
        found = query(place.sockets, Query("names", "all"))
        assert found is not None
        assert [row["key"] for row in found.rows] == ["n"]


def test_tasks_that_nobody_runs_are_told(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=2)
    with place.app() as app:
        worker = app._worker
        assert worker is not None
        app.look(lambda worker: worker._connection._group.join("stranger", worker._connection._member.note))
        until(lambda: len(app.metrics()["tasks"]) == 1)
        found = query(place.sockets, Query("counts", "all"))
        assert found is not None
        assert len(found.missing) == 1


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    place = Place(folder)
    place.send("a")
    with place.app() as app:
        app.wait_idle()
        (link,) = place.sockets.iterdir()
        target = Path(os.readlink(link))
        found = query(place.sockets, Query("counts", "get", key="a"))
        assert found is not None
        assert found.rows[0]["value"] == 1
    assert list(place.sockets.iterdir()) == []
    assert not target.parent.exists()


def test_sockets_of_the_dead_are_passed_over_and_removed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.sockets.mkdir(parents=True)
    dead, young = place.sockets / "1-dead.sock", place.sockets / "2-young.sock"
    for path in (dead, young):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(str(path))
    os.utime(dead, (time.time() - 60, time.time() - 60))
    assert ask_all(place.sockets, State()) == {}
    with place.app():
        assert len(ask_all(place.sockets, State())) == 1
        assert not dead.exists()
        assert young.exists()


def test_a_link_of_the_dead_goes_with_what_it_points_to(tmp_path: Path) -> None:
    place = Place(tmp_path / "log")
    place.sockets.mkdir(parents=True)
    left = tmp_path / "left"
    left.mkdir()
    link = place.sockets / "1-dead.sock"
    link.symlink_to(left / "gone.sock")
    os.utime(link, (0, 0), follow_symlinks=False)
    with place.app():
        assert not link.is_symlink()
        assert not left.exists()


def test_only_its_user_may_enter(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.app():
        assert place.sockets.stat().st_mode & 0o777 == 0o700


def test_several_questions_over_one_connection(place: Place, app: App) -> None:
    (path,) = place.sockets.iterdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.connect(os.path.realpath(path))
        with asker.makefile("rwb") as lines:
            for question in (State(), Stores(), State()):
                lines.write(msgspec.json.encode(question) + b"\n")
            lines.flush()
            answers = [json.loads(lines.readline()) for _ in range(3)]
    assert [list(told) for told in answers] == [["ok"]] * 3
    assert answers[0]["ok"]["state"] == "running"


def test_the_state_is_told_while_nothing_else_can_be(tmp_path: Path) -> None:
    app = open_app(counting(), Config("app"), f"log://{tmp_path}")
    with serving(app, tmp_path / "sockets"):
        (told,) = ask_all(tmp_path / "sockets", Metrics()).values()
        assert (told["state"], told["tasks"]) == ("created", {})
        with pytest.raises(StreamsError, match="is created: it cannot be asked now"):
            query(tmp_path / "sockets", Query("counts", "all"))
