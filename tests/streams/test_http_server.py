"""Where a worker listens, whom it answers, and how much it takes from them."""

import json
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from headwater import StreamsError
from headwater.streams.app import App
from headwater.streams.http import paths, server
from headwater.streams.http.server import listening
from tests.streams.apps import Place, until
from tests.streams.asking import ADDRESS, ask, connected, talk


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    place = Place(tmp_path_factory.mktemp("log"))
    place.send("a")
    with place.app() as app:
        app.wait_idle()
        yield app


@pytest.fixture(scope="module")
def url(app: App) -> Iterator[str]:
    with listening(app, ADDRESS, app_id="app") as url:
        yield url


# ---- tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["0.0.0.0:0", ":0", "[::]:0"])
def test_elsewhere_than_on_loopback_a_token_is_needed(app: App, listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_TOKEN", raising=False)
    with (
        pytest.raises(StreamsError, match="a token is needed: set HEADWATER_TOKEN"),
        listening(app, listen, app_id="a"),
    ):
        pass


@pytest.mark.parametrize("token", ["", "two words", "né", "a\nb"])
def test_a_token_that_cannot_be_sent(app: App, token: str) -> None:
    with pytest.raises(StreamsError, match="printable ASCII"), listening(app, ADDRESS, app_id="a", token=token):
        pass


def test_only_who_knows_the_token_is_answered(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_TOKEN", "sesame")
    with listening(app, "0.0.0.0:0", app_id="app", advertise="shop") as advertised:
        port = urlsplit(advertised).port
        assert advertised == f"http://shop:{port}"
        url = f"http://127.0.0.1:{port}"
        for given in (
            {},
            {"Authorization": "Bearer sesam"},
            {"Authorization": "Bearer"},
            {"Authorization": "Basic sesame"},
        ):
            for path in ("/stores", "/metrics", "/state", "/workers", "/stores/counts/all", "/nothing"):
                answer = ask(url, path, headers=given)
                assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
                assert "sesame" not in answer.error
        assert ask(url, "/stores", headers={"Authorization": "Bearer sesame"}).status == 200
        assert ask(url, "/stores", headers={"Authorization": "bearer  sesame", "Host": "anything"}).status == 200
        assert ask(url, "/healthz").status == ask(url, "/readyz").status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_without_a_token_a_web_page_cannot_ask(url: str, host: str) -> None:
    answer = ask(url, "/stores", headers={"Host": host})
    assert answer.status == 403
    assert "only this machine may ask" in answer.error


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.2:1", "[::1]:80", "[::1]"])
def test_this_machines_own_names(url: str, host: str) -> None:
    assert ask(url, "/stores", headers={"Host": host}).status == 200


# ---- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_nothing_can_be_changed(url: str, method: str) -> None:
    answer = ask(url, "/stores", method)
    assert answer.status == 405
    assert answer.error


def test_head_has_no_body(url: str) -> None:
    answer = ask(url, "/stores", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 10


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\0\xff\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"GET /stores HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"GET /stores HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 414),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", 431),
    ],
)
def test_a_bad_request_is_refused_in_json(url: str, said: bytes, status: int) -> None:
    head, _, body = talk(url, said).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(body)["error"]


def test_several_questions_over_one_connection(url: str) -> None:
    question = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert talk(url, question, question, last).count(b'{"state":"running"}') == 3


def test_a_request_that_does_not_arrive_is_not_waited_for(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ARRIVAL_SECONDS", 0.5)
    with listening(app, ADDRESS, app_id="app") as url, connected(url) as line:
        line.sendall(b"GET /stores HTTP/1.1\r\nx: ")
        line.settimeout(0.1)
        began, ended = time.monotonic(), False
        while not ended and time.monotonic() - began < 30:
            # A little at a time: none of the pauses is long.
            try:
                line.sendall(b"x")
                line.recv(1)
                ended = True
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
        assert ask(url, "/healthz").status == 200


def test_more_connections_than_there_are_seats(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    with listening(app, ADDRESS, app_id="app") as url:
        lines = [connected(url) for _ in range(2)]
        for line in lines:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        refused = talk(url)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in refused
        lines[0].close()
        until(lambda: ask(url, "/healthz").status == 200)
        lines[1].close()


def test_a_worker_that_does_not_answer(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(paths, "MOST_WAITING", 2)
    begun, done = threading.Event(), threading.Event()
    held = threading.Thread(target=app.look, args=(lambda worker: begun.set() or done.wait(60),))
    with listening(app, ADDRESS, app_id="app") as url:
        held.start()
        try:
            assert begun.wait(60)
            for _ in range(2):
                answer = ask(url, "/stores/counts/all")
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                assert "has not answered within 0 s" in answer.error
            assert "2 questions wait for the worker" in ask(url, "/stores/counts/all").error
            assert ask(url, "/healthz").status == 200
            assert ask(url, "/readyz").status == 503
        finally:
            done.set()
            held.join()
        until(lambda: ask(url, "/stores/counts/all").status == 200)


def test_who_is_connected_is_let_go_at_the_end(app: App) -> None:
    with listening(app, ADDRESS, app_id="app") as url:
        line = connected(url)
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    assert line.recv(1) == b""
    line.close()
    with pytest.raises(ConnectionRefusedError):
        ask(url, "/healthz")


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "http://127.0.0.1:1/"])
def test_an_address_that_is_none(app: App, listen: str) -> None:
    with pytest.raises(StreamsError, match="write host:port"), listening(app, listen, app_id="app"):
        pass


def test_a_port_that_is_taken(app: App, url: str) -> None:
    listen = urlsplit(url).netloc
    with pytest.raises(StreamsError, match=f"Cannot listen on {listen} "), listening(app, listen, app_id="app"):
        pass
