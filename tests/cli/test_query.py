"""`headwater query`: rows of a running application, for people and for scripts."""

from pathlib import Path

import pytest

from headwater.streams.http.server import listening
from tests.cli.conftest import Command
from tests.cli.services import fill, running, write
from tests.streams.apps import Place, until
from tests.streams.asking import Known, Peer
from tests.streams.test_http_places import KEYS, copied, tasks_of


def test_rows_of_a_running_application(folder: Path, headwater: Command) -> None:
    write(folder)
    fill(folder, "tea", "milk", "tea", partitions=2, at=1000)
    with running(folder, "--workers", "2", expected=3):
        stores = headwater("query", "words")
        assert stores.lines[0].split() == ["store", "kind", "key", "value"]
        assert [row.split()[:2] for row in stores.lines[1:]] == [["counts", "timestamped"], ["windows", "window"]]
        assert [store["name"] for store in headwater("query", "words", "--json").json] == ["counts", "windows"]

        found = headwater("query", "words.py", "counts", "get", "tea")
        assert (found.code, found.err) == (0, "")
        assert found.lines == ["key  value  timestamp", "tea      2  1970-01-01T00:00:01.000Z"]
        found = headwater("query", "words", "counts", "all", "--json")
        assert found.json == {
            "rows": [
                {"key": "milk", "value": 1, "timestamp": 1000},
                {"key": "tea", "value": 2, "timestamp": 1000},
            ],
            "more": False,
            "missing": [],
        }
        assert headwater("query", "words", "counts").text == headwater("query", "words", "counts", "all").text
        ranged = headwater("query", "words", "counts", "range", "-", "n", "--json").json
        assert [row["key"] for row in ranged["rows"]] == ["milk"]
        limited = headwater("query", "words", "counts", "all", "--limit", "1")
        assert len(limited.lines) == 2
        assert "more than 1: raise --limit" in limited.err

        window = headwater("query", "words", "windows", "fetch", "tea", "--from", "0", "--to", "1000", "--json").json
        assert window["rows"] == [{"key": "tea", "start": 0, "end": 10000, "value": 2, "timestamp": 1000}]
        assert headwater("query", "words", "windows", "fetch", "tea", "--from", "1", "--json").json["rows"] == []
        assert headwater("query", "words", "windows", "get", "tea", "--start", "0").lines[1].split()[3] == "2"

        missing = headwater("query", "words", "counts", "get", "coffee")
        assert (missing.code, missing.text) == (1, "")
        assert "counts has no row for coffee" in missing.err
        missing = headwater("query", "words", "counts", "get", "coffee", "--json")
        assert (missing.code, missing.json["rows"]) == (1, [])

        for words, told in (
            (["nothing", "all"], "there is no store 'nothing', only counts, windows"),
            (["counts", "get"], "get takes 1 key, but got 0"),
            (["counts", "range", "a"], "range takes 2 keys, but got 1"),
            (["counts", "fetch", "a"], "which has no fetch"),
            (["windows", "get", "tea"], "say when it starts"),
        ):
            found = headwater("query", "words", *words)
            assert (found.code, found.text) == (1, "")
            assert told in found.err


@pytest.mark.parametrize("words", [[], ["counts", "all"]])
def test_nobody_runs(folder: Path, headwater: Command, words: list[str]) -> None:
    (folder / ".headwater" / "apps" / "another").mkdir(parents=True)
    found = headwater("query", "words", *words)
    assert found.code == 1
    assert "No worker of 'words' is running on the state in" in found.err
    assert "Applications there: another." in found.err


def test_a_worker_at_an_address(folder: Path, headwater: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(folder / "elsewhere", partitions=2)
    place.send("tea", "milk", "tea")
    with place.app() as app, listening(app, "127.0.0.1:0", app_id="app", token="sesame") as url:
        app.wait_idle()
        assert "this needs the token" in headwater("query", "app", "--url", url).err
        monkeypatch.setenv("HEADWATER_TOKEN", "sesame")
        assert [store["name"] for store in headwater("query", "app", "--url", url, "--json").json] == ["counts"]
        found = headwater("query", "app.py", "counts", "get", "tea", "--url", url)
        assert (found.code, found.lines[1].split()[:2]) == (0, ["tea", "2"])
        found = headwater("query", "app", "counts", "--url", url, "--json", "--stale")
        assert [row["key"] for row in found.json["rows"]] == ["milk", "tea"]
        assert headwater("query", "app", "counts", "get", "coffee", "--url", url).code == 1
        assert "no store 'nothing'" in headwater("query", "app", "nothing", "--url", url).err
        assert "is a worker of 'app', not of 'shop'" in headwater("query", "shop", "--url", url).err
        assert "is no worker's address" in headwater("query", "app", "--url", "127.0.0.1:1").err
        (worker,) = headwater("top", "--url", url, "--json").json["app"]
        assert worker["records-total"] == 3
        assert "2 of 2 tasks" in headwater("top", "app", "--url", url, "--once").text
    gone = headwater("query", "app", "--url", url)
    assert (gone.code, gone.text) == (1, "")
    assert f"No worker answers at {url}" in gone.err
    assert f"No worker of 'app' is running at {url}" in headwater("top", "app", "--url", url).err


def test_rows_of_a_copy_are_marked(folder: Path, headwater: Command) -> None:
    place = Place(folder / "elsewhere", partitions=2)
    place.send(*KEYS)
    known = Known("one", [Peer("one")])
    with place.app() as first, place.app() as second:
        until(lambda: len(tasks_of(first)) == len(tasks_of(second)) == 1)
        first.wait_idle()
        second.wait_idle()
        (lost,) = tasks_of(second)
        copies = copied(second, 1200)
        first.look(lambda worker: setattr(worker._connection, "standbys", copies))
        with listening(first, "127.0.0.1:0", app_id="app", places=lambda: known) as url:
            known.peers[0] = Peer("one", url, tasks_of(first), {lost: 1200})
            fresh = headwater("query", "app", "counts", "--url", url)
            assert f"(tasks {lost} are on their way to a worker: rows are missing)" in fresh.err
            stale = headwater("query", "app", "counts", "--url", url, "--stale")
            assert [line.split()[0] for line in stale.lines[1:]] == KEYS
            assert stale.err == f"(the rows of task {lost} are a copy's, 1,200 records behind)\n"
            assert headwater("query", "app", "counts", "--url", url, "--stale", "--json").json["stale"] == {lost: 1200}
