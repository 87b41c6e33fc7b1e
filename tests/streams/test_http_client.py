"""The workers of an application asked as one, over HTTP."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater import Producer, StreamsError
from headwater.streams.app import App
from headwater.streams.http import client
from headwater.streams.http.client import RemoteApp
from headwater.streams.http.server import listening
from headwater.streams.queries import Query
from tests.streams.apps import Place, until
from tests.streams.asking import ADDRESS, Known, Peer
from tests.streams.test_http_places import KEYS, copied, split, tasks_of
from tests.streams.test_http_places import shared as shared
from tests.streams.test_queries import every_kind

NOWHERE = "http://127.0.0.1:9"


class Pair(NamedTuple):
    """Two workers that share an application's tasks, their addresses, and what both know."""

    first: App
    second: App
    one: str
    two: str
    known: list[Peer]


@pytest.fixture
def pair(shared: tuple[App, App]) -> Iterator[Pair]:
    first, second = shared
    known = [Peer("one", None, tasks_of(first)), Peer("two", None, tasks_of(second))]
    with (
        listening(first, ADDRESS, app_id="app", places=lambda: Known("one", known)) as one,
        listening(second, ADDRESS, app_id="app", places=lambda: Known("two", known)) as two,
    ):
        known[0].endpoint, known[1].endpoint = one, two
        yield Pair(first, second, one, two, known)


def test_a_key_is_found_whichever_worker_is_asked(pair: Pair) -> None:
    for url in (pair.one, pair.two):
        app = RemoteApp([url], app_id="app")
        for key in KEYS:
            found = app.query(Query("counts", "get", key=key))
            assert ([row["key"] for row in found.rows], found.missing) == ([key], [])
        assert app.query(Query("counts", "get", key="nothing", text=True)).rows == []
        assert [store["name"] for store in app.stores()] == ["counts"]


def test_all_rows_are_those_of_all_workers(pair: Pair) -> None:
    # The first does not answer, and the second tells of the rest.
    app = RemoteApp([NOWHERE, pair.two])
    found = app.query(Query("counts", "all"))
    assert ([row["key"] for row in found.rows], found.more, found.missing) == (KEYS, False, [])
    found = app.query(Query("counts", "range", lo="k03", hi="k10", limit=4, text=True))
    assert ([row["key"] for row in found.rows], found.more) == (["k03", "k04", "k05", "k06"], True)
    assert sorted(task for worker in app.metrics() for task in worker["tasks"]) == ["0_0", "0_1", "0_2", "0_3"]


def test_the_rows_of_a_worker_that_is_not_reached_are_missing(pair: Pair) -> None:
    here, _ = split(pair.first)
    pair.known[1].endpoint = NOWHERE
    found = RemoteApp([pair.one]).query(Query("counts", "all"))
    assert [row["key"] for row in found.rows] == here
    assert found.missing == list(tasks_of(pair.second))


def test_a_key_whose_worker_is_not_reached(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOVING_SECONDS", 0.5)
    _, there = split(pair.first)
    pair.known[1].endpoint = NOWHERE
    with pytest.raises(StreamsError, match=f"the worker at {NOWHERE} has the key, but does not answer"):
        RemoteApp([pair.one]).query(Query("counts", "get", key=there[0]))


def test_a_task_on_its_way_is_waited_for(pair: Pair) -> None:
    _, there = split(pair.first)
    tasks, pair.known[1].tasks = pair.known[1].tasks, ()

    def arrive() -> None:
        time.sleep(0.6)
        pair.known[1].tasks = tasks

    began = time.monotonic()
    threading.Thread(target=arrive).start()
    found = RemoteApp([pair.one]).query(Query("counts", "get", key=there[0]))
    assert [row["key"] for row in found.rows] == there[:1]
    assert time.monotonic() - began > 0.5


def test_copies_answer_for_what_nobody_runs(pair: Pair) -> None:
    here, there = split(pair.first)
    lost = tasks_of(pair.second)
    copies = copied(pair.second, 5)
    pair.first.look(lambda worker: setattr(worker._connection, "standbys", copies))
    pair.known[0].standbys = dict.fromkeys(lost, 5)
    del pair.known[1]
    app = RemoteApp([pair.one])
    found = app.query(Query("counts", "all"))
    assert ([row["key"] for row in found.rows], found.missing, found.stale) == (here, list(lost), {})
    found = app.query(Query("counts", "all"), stale=True)
    assert ([row["key"] for row in found.rows], found.missing) == (KEYS, [])
    assert found.stale == dict.fromkeys(lost, 5)
    found = app.query(Query("counts", "get", key=there[0]), stale=True)
    assert ([row["key"] for row in found.rows], list(found.stale.values())) == (there[:1], [5])


def test_workers_that_know_of_no_other_are_asked_one_by_one(shared: tuple[App, App]) -> None:
    first, second = shared
    with listening(first, ADDRESS, app_id="app") as one, listening(second, ADDRESS, app_id="app") as two:
        app = RemoteApp([one, two])
        assert [row["key"] for row in app.query(Query("counts", "all")).rows] == KEYS
        for key in KEYS:
            assert [row["key"] for row in app.query(Query("counts", "get", key=key)).rows] == [key]


def test_a_key_in_a_partition_of_its_writers_choice(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=2)
    with Producer(place.broker) as producer:
        for number, key in enumerate(KEYS):
            producer.send("in", key=key, value='"x"', partition=number % 2, timestamp=1)
    with place.app() as first, place.app() as second:
        until(lambda: len(tasks_of(first)) == len(tasks_of(second)) == 1)
        first.wait_idle()
        second.wait_idle()
        known = [Peer("one", None, tasks_of(first)), Peer("two", None, tasks_of(second))]
        with (
            listening(first, ADDRESS, app_id="app", places=lambda: Known("one", known)) as one,
            listening(second, ADDRESS, app_id="app", places=lambda: Known("two", known)) as two,
        ):
            known[0].endpoint, known[1].endpoint = one, two
            for key in KEYS:
                assert [row["key"] for row in RemoteApp([one]).query(Query("counts", "get", key=key)).rows] == [key]


def test_a_global_table_is_told_once(tmp_path: Path) -> None:
    place = Place(tmp_path, partitions=2, topics=("in", "users", "names"))
    place.send("n", topic="names", value="Nora")
    with (
        place.app(every_kind()) as first,
        place.app(every_kind()) as second,
        listening(first, ADDRESS, app_id="app") as one,
        listening(second, ADDRESS, app_id="app") as two,
    ):
        app = RemoteApp([one, two])
        assert [row["key"] for row in app.query(Query("names", "all")).rows] == ["n"]
        assert [row["value"] for row in app.query(Query("names", "get", key="n")).rows] == ["Nora"]
        assert app.query(Query("names", "get", key="m")).rows == []


def test_windows_are_asked_for_by_time(tmp_path: Path) -> None:
    place = Place(tmp_path, topics=("in", "users", "names"))
    place.send("a", at=1_000)
    place.send("a", at=25_000)
    with place.app(every_kind()) as worker, listening(worker, ADDRESS, app_id="app") as url:
        worker.wait_idle()
        app = RemoteApp([url])
        found = app.query(Query("windows", "fetch", key="a", since=1, until=20_000))
        assert [row["start"] for row in found.rows] == [20_000]
        assert len(app.query(Query("windows", "get", key="a", start=0)).rows) == 1
        assert len(app.query(Query("sessions", "get", key="a", start=1_000, end=1_000)).rows) == 1


def test_what_is_wrong_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    app = RemoteApp([pair.one])
    with pytest.raises(StreamsError, match="there is no store 'nothing'"):
        app.query(Query("nothing", "all"))
    with pytest.raises(StreamsError, match="7 is no key of 'counts'"):
        app.query(Query("counts", "get", key=7))
    with pytest.raises(StreamsError, match="is a worker of 'app', not of 'shop'"):
        RemoteApp([pair.one], app_id="shop").stores()
    with pytest.raises(StreamsError, match=f"No worker answers at {NOWHERE}"):
        RemoteApp([NOWHERE]).stores()
    with pytest.raises(StreamsError, match="'ftp://shop' is no worker's address"):
        RemoteApp(["ftp://shop"])
    with pytest.raises(StreamsError, match="'http://shop:x' is no worker's address"):
        RemoteApp(["http://shop:x"])


def test_the_token_goes_along(shared: tuple[App, App], monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = shared
    with listening(first, ADDRESS, app_id="app", token="sesame") as url:
        with pytest.raises(StreamsError, match=r"this needs the token.* It is taken from HEADWATER_TOKEN"):
            RemoteApp([url]).stores()
        assert RemoteApp([url], token="sesame").stores()
        monkeypatch.setenv("HEADWATER_TOKEN", "sesame")
        assert RemoteApp([url]).stores()


def test_what_is_no_worker(tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Other(BaseHTTPRequestHandler):
        said = b"<html>"

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.said)

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        for said in (b"<html>", json.dumps({"state": "fine"}).encode(), b"[]"):
            Other.said = said
            with pytest.raises(StreamsError, match="is no worker of Headwater's"):
                RemoteApp([f"http://127.0.0.1:{other.server_address[1]}"]).stores()
        other.shutdown()
