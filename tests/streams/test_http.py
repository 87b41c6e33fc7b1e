"""What a worker answers over HTTP: rows, probes and metrics."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import StreamsBuilder, StreamsError, Topology
from headwater.streams.app import App
from headwater.streams.http import paths
from headwater.streams.http.server import listening
from tests.streams.apps import Place, counting, until
from tests.streams.asking import ADDRESS, ask
from tests.streams.test_queries import A_0, A_20, B_0, LAST_SESSION, SESSION, every_kind
from tests.streams.test_queries import place as place


@pytest.fixture(scope="module")
def app(place: Place) -> Iterator[App]:
    with place.app(every_kind()) as app:
        app.wait_idle()
        yield app


@pytest.fixture(scope="module")
def url(app: App) -> Iterator[str]:
    with listening(app, ADDRESS, app_id="app") as url:
        yield url


# ---- rows --------------------------------------------------------------------------------------------------------

COUNT_A = {"key": "a", "value": 3, "timestamp": 25_000}
COUNT_B = {"key": "b", "value": 1, "timestamp": 2_000}


@pytest.mark.parametrize(
    ("path", "parameters", "rows"),
    [
        ("counts/get", {"key": '"a"'}, [COUNT_A]),
        ("counts/get", {"key": "a", "text": "1"}, [COUNT_A]),
        ("counts/get", {"key": '"z"'}, []),
        ("counts/range", {"lo": '"b"'}, [COUNT_B]),
        ("counts/range", {"hi": "a", "text": "1"}, [COUNT_A]),
        ("counts/range", {}, [COUNT_A, COUNT_B]),
        ("counts/all", {"limit": 1}, [COUNT_A]),
        ("windows/get", {"key": '"a"', "start": 20_000}, [A_20]),
        ("windows/fetch", {"key": '"a"'}, [A_0, A_20]),
        ("windows/fetch", {"key": '"a"', "since": 1, "until": 20_000}, [A_20]),
        ("windows/all", {"until": 0}, [A_0, B_0]),
        ("sessions/get", {"key": '"a"', "start": 1_000, "end": 3_000}, [SESSION]),
        ("sessions/fetch", {"key": '"a"', "since": 25_000}, [LAST_SESSION]),
        ("users/get", {"key": '"u"', "as_of": 15_000}, [{"key": "u", "value": "old", "timestamp": 10_000}]),
        ("users/all", {}, [{"key": "u", "value": "new", "timestamp": 20_000}]),
        ("names/get", {"key": '"n"'}, [{"key": "n", "value": "Nora", "timestamp": 1}]),
        ("names/all", {}, [{"key": "n", "value": "Nora", "timestamp": 1}]),
    ],
)
def test_rows_of_every_kind_of_store(url: str, path: str, parameters: dict[str, Any], rows: list[Any]) -> None:
    answer = ask(url, f"/stores/{path}", **parameters)
    assert (answer.status, answer.json["rows"], answer.json["missing"]) == (200, rows, [])
    assert answer.headers["Content-Type"] == "application/json"


def test_a_limit_and_what_rows_are_sorted_by(url: str) -> None:
    told = ask(url, "/stores/counts/all", limit=1, order="1").json
    assert (told["more"], told["order"]) == (True, [["61"]])
    assert sorted(told["tasks"]) == sorted(told["here"]) == ["0_0", "0_1", "0_2"]
    told = ask(url, "/stores/counts/all").json
    assert (told["more"], "order" in told) == (False, False)


def test_only_some_tasks(url: str) -> None:
    by_task = [ask(url, "/stores/counts/all", tasks=f"0_{number}").json["rows"] for number in range(3)]
    assert sorted(row["key"] for rows in by_task for row in rows) == ["a", "b"]
    answer = ask(url, "/stores/counts/all", tasks="0_0,9_9")
    assert (answer.status, answer.error) == (400, "tasks=0_0,9_9: only 0_0, 0_1, 0_2 keep the store")


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/stores/count/all", 404, "there is no store 'count', only counts, names"),
        ("/stores/counts", 404, "there is nothing at /stores/counts"),
        ("/stores/counts/drop", 404, "there is nothing at /stores/counts/drop, only /stores"),
        ("/", 404, "there is nothing at /"),
        ("/stores/counts/get", 400, "get needs a key"),
        ("/stores/counts/get?key=null", 400, "get needs a key"),
        ("/stores/counts/get?key=a", 400, 'key=a is no JSON: put text into quotes (key="…"), or add text=1'),
        ("/stores/counts/get?key=7", 400, "7 is no key of 'counts', whose keys are Str()"),
        ("/stores/counts/get?key=%22a%22&key=%22b%22", 400, "a parameter is given twice"),
        ("/stores/counts/get?key=%ff", 400, "the address cannot be read"),
        ("/stores/%ff/all", 400, "the address cannot be read"),
        ("/stores/counts/all?&&", 400, "the address cannot be read"),
        ("/stores/counts/all?tpyo=1", 400, "there is no parameter tpyo here, only from, here, limit"),
        ("/stores/counts/all?limit=0", 400, "limit must be at least 1"),
        ("/stores/counts/all?limit=10001", 400, "write a whole number up to 10000"),
        ("/stores/counts/all?limit=-1", 400, "write a whole number"),
        ("/stores/counts/all?limit=%C2%B2", 400, "write a whole number"),
        ("/stores/counts/all?text=yes", 400, "write text=1, or leave it out"),
        ("/stores/counts/all?stale=yes", 400, "write stale=ok, or leave it out"),
        ("/stores/counts/fetch?key=%22a%22", 400, "which has no fetch, but get, range, all"),
        ("/stores/windows/get?key=%22a%22", 400, "say when it starts"),
        ("/stores/windows/get?key=%22a%22&start=99999999999999999999", 400, "write a whole number"),
        ("/stores/windows/fetch?key=%22a%22&from=yesterday", 400, "from=yesterday is not understood"),
        ("/state?x=1", 400, "there is no parameter x here, only none at all"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(url: str, path: str, status: int, error: str) -> None:
    answer = ask(url, path)
    assert answer.status == status
    assert error in answer.error


def test_state_and_stores(url: str) -> None:
    state = ask(url, "/state").json
    assert (state["app-id"], state["state"], state["endpoint"]) == ("app", "running", url)
    assert [store["name"] for store in ask(url, "/stores").json] == ["counts", "names", "sessions", "users", "windows"]
    assert ask(url, "/workers").json == []


# ---- how it is doing ---------------------------------------------------------------------------------------------


def test_metrics_for_prometheus(url: str) -> None:
    answer = ask(url, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert samples['headwater_state{app="app",state="running"}'] == "1"
    assert samples['headwater_tasks{app="app"}'] == "6"
    tasks = [f'{{app="app",task="{group}_{number}"}}' for group in (0, 1) for number in range(3)]
    assert sum(int(samples[f"headwater_records_total{task}"]) for task in tasks) == 6
    assert all(samples[f"headwater_lag_records{task}"] == "0" for task in tasks)
    rows = [
        int(n) for name, n in samples.items() if name.startswith("headwater_store_rows{") and 'store="counts"' in name
    ]
    assert sum(rows) == 2
    # Each family is told once, with its kind.
    kinds = [line.split()[2:] for line in lines if line.startswith("# TYPE")]
    assert len({name for name, _ in kinds}) == len(kinds)
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds)
    assert {name.partition("{")[0] for name in samples} == {name for name, _ in kinds}
    told = ask(url, "/metrics", json="1").json
    assert (told["app-id"], told["records-total"]) == ("app", 6)


def test_probes_follow_the_applications_life(tmp_path: Path) -> None:
    place = Place(tmp_path)
    app = place.app()
    with listening(app, ADDRESS, app_id="app") as url:
        assert (ask(url, "/healthz").status, ask(url, "/readyz").status) == (200, 503)
        answer = ask(url, "/stores/counts/all")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert 'headwater_state{app="app",state="created"} 1' in ask(url, "/metrics").body.decode()
        with app:
            assert (ask(url, "/healthz").status, ask(url, "/readyz").status) == (200, 200)
            app.pause()
            assert (ask(url, "/healthz").status, ask(url, "/readyz").status) == (200, 503)
            assert ask(url, "/stores/counts/all").status == 200
        assert (ask(url, "/healthz").json, ask(url, "/healthz").status) == ({"state": "stopped"}, 503)
        assert ask(url, "/readyz").status == 503
        assert "the application is stopped" in ask(url, "/stores/counts/all").error


def test_a_task_that_another_still_has_makes_a_worker_unready(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.app() as app, listening(app, ADDRESS, app_id="app") as url:
        app.look(lambda worker: setattr(worker, "waiting_for", lambda: ["0_7"]))
        answer = ask(url, "/readyz")
        assert (answer.status, answer.json["waiting-for"]) == (503, ["0_7"])


def failing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: 1 / 0).to("out")
    return builder.build()


def test_an_application_that_has_failed_is_not_healthy(tmp_path: Path) -> None:
    place = Place(tmp_path)
    app = place.app(failing())
    with listening(app, ADDRESS, app_id="app") as url:
        app.start()
        place.send("a")
        until(lambda: app.state == "failed")
        assert (ask(url, "/healthz").status, ask(url, "/readyz").status) == (503, 503)
        assert "ZeroDivisionError" in ask(url, "/state").json["error"]
        assert 'state="failed"' in ask(url, "/metrics").body.decode()
    with pytest.raises(StreamsError):
        app.join()


def test_a_fault_of_ours_is_told_and_logged(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr(paths, "question_of", broken)
    answer = ask(url, "/stores/counts/all")
    assert (answer.status, answer.error) == (500, "RuntimeError: oh")
    assert "/stores/counts/all could not be answered" in caplog.text


def test_rows_come_while_it_works(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.app(counting()) as app, listening(app, ADDRESS, app_id="app") as url:
        get: Callable[[], Any] = lambda: ask(url, "/stores/counts/get", key='"a"').json["rows"]  # noqa: E731
        assert get() == []
        place.send("a", "a")
        until(lambda: get() == [{"key": "a", "value": 2, "timestamp": 1000}])
