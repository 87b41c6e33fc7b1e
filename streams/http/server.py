"""The HTTP endpoint of a worker: where it listens, who may ask, and how much. It owns addresses, tokens, connections
and limits; what is asked and answered is paths.py's.

It listens on this machine's own loopback address, or elsewhere if there is a token that askers must know: they send it
as `Authorization: Bearer <token>`. There is no TLS: where others may listen in, a proxy in front must bring it. On
loopback without a token it answers only to its own names, so that no web page can ask through its reader's browser.

Limits: a request line of 8 KiB, no body, 15 seconds for a request to arrive, 64 connections at once.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import ipaddress
import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from headwater.errors import StreamsError
from headwater.streams.http.paths import OPEN_PATHS, Paths
from headwater.streams.http.replies import RETRY, Refusal, Reply
from headwater.streams.http.rows import Places

if TYPE_CHECKING:
    from headwater.streams.app import App

__all__ = ["TOKEN", "listening"]

log = logging.getLogger("headwater")

# The environment's name for the token.
TOKEN = "HEADWATER_TOKEN"
LONGEST_TARGET = 8 << 10
MOST_CONNECTIONS = 64
# How long a connection may be idle, and how long a request may take to arrive.
IDLE_SECONDS, ARRIVAL_SECONDS = 10.0, 15.0
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}


@contextlib.contextmanager
def listening(
    app: App,
    listen: str,
    *,
    app_id: str,
    token: str | None = None,
    places: Callable[[], Places | None] = lambda: None,
    advertise: str | None = None,
) -> Iterator[str]:
    """While in it, the application answers over HTTP; gives the URL at which others reach it.

    - `listen`: host:port; port 0 picks one that is free.
    - `token`: what askers must know, HEADWATER_TOKEN of the environment if left out.
    - `places`: what is known of the other workers at the moment, None for nothing.
    - `advertise`: the host, or host:port, that others reach it by, if it is not the one it listens on.
    """
    host, port = _address(listen)
    token = os.environ.get(TOKEN) if token is None else token
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise StreamsError("The token must be printable ASCII without spaces: make one with `openssl rand -hex 32`.")
    if token is None and not _is_loopback(host):
        raise StreamsError(
            f"Listening on {listen} lets other machines read the application's stores, so a token is needed: set "
            f"{TOKEN} (make one with `openssl rand -hex 32`), or listen on 127.0.0.1:{port}."
        )
    paths = Paths(app, app_id, places)
    try:
        server = _Server(host, port, paths, token)
    except OSError as error:
        raise StreamsError(
            f"Cannot listen on {listen} ({error.strerror or error}): choose another address or port, 0 for one that is "
            "free."
        ) from error
    paths.endpoint = endpoint = _url(host, server.port, advertise)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="headwater-http", daemon=True)
    thread.start()
    log.info("answering questions at %s", endpoint)
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        server.hang_up()
        thread.join()


def _address(listen: str) -> tuple[str, int]:
    """Host and port of an address to listen on.

    >>> _address("127.0.0.1:8080"), _address("[::1]:0"), _address(":8080")
    (('127.0.0.1', 8080), ('::1', 0), ('', 8080))
    """
    host, separator, port = listen.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise StreamsError(f"Cannot listen on {listen!r}: write host:port, such as 127.0.0.1:8080.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> [_is_loopback(host) for host in ("localhost", "127.8.0.1", "::1", "0.0.0.0", "", "10.0.0.1", "shop")]
    [True, True, True, False, False, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(host: str, port: int, advertise: str | None) -> str:
    """Where others reach it.

    >>> _url("127.0.0.1", 80, None), _url("::1", 80, None), _url("0.0.0.0", 80, "shop"), _url("", 80, "shop:8080")
    ('http://127.0.0.1:80', 'http://[::1]:80', 'http://shop:80', 'http://shop:8080')
    """
    if advertise is not None:
        named = advertise.rpartition(":")[2].isdigit() and not advertise.endswith("]")
        return f"http://{advertise}" if named else f"http://{advertise}:{port}"
    if host in ("", "0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, paths: Paths, token: str | None) -> None:
        self.paths = paths
        self.token = token
        self._seats = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        # Open connections, and by when each must have sent its request; None while it is answered.
        self._due: dict[socket.socket, float | None] = {}
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self.address_family = family
        super().__init__(cast(Any, address), _Conversation)
        self.port: int = self.socket.getsockname()[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._seats.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.settimeout(1)
                reply = Refusal(503, f"there are {MOST_CONNECTIONS} connections already: try again", RETRY).reply
                request.sendall(_raw(reply))
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._seats.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._due.pop(request, None)
            self._seats.release()

    def expect(self, connection: socket.socket, due: float | None) -> None:
        """Cut a connection off unless its request is there by then."""
        with self._lock:
            self._due[connection] = due

    def service_actions(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, due in self._due.items() if due is not None and due < now]
        for connection in late:
            _deafen(connection)

    def hang_up(self) -> None:
        """Take no more requests from those who are still connected; what is asked is answered."""
        with self._lock:
            connections = list(self._due)
        for connection in connections:
            _deafen(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Askers go away in the middle; that is nobody's fault.
        log.debug("a conversation over HTTP has broken off", exc_info=True)


def _deafen(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RD)


def _raw(reply: Reply) -> bytes:
    """A reply to one who has not been listened to."""
    head = [f"HTTP/1.1 {reply.status} {http.HTTPStatus(reply.status).phrase}", "Connection: close"]
    head += [f"Content-Type: {reply.kind}", f"Content-Length: {len(reply.body)}"]
    head += [f"{name}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + reply.body


class _Conversation(http.server.BaseHTTPRequestHandler):
    """One asker, request by request."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    # What is answered goes out in one piece.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        self.server.expect(self.connection, time.monotonic() + ARRIVAL_SECONDS)
        super().handle_one_request()

    def do_GET(self) -> None:
        self.server.expect(self.connection, None)
        self._send(self._reply())

    do_HEAD = do_GET

    def _refuse_method(self) -> None:
        # There may be a body, which nobody reads.
        self.close_connection = True
        self._send(
            Refusal(405, f"{self.command} changes things, and here they can only be read", {"Allow": "GET"}).reply
        )

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse_method

    def _reply(self) -> Reply:
        if len(self.path) > LONGEST_TARGET:
            return Refusal(414, f"the address is longer than {LONGEST_TARGET} bytes").reply
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            return Refusal(400, "a question has no body").reply
        refused = self._stranger()
        return self.server.paths.answer(self.path) if refused is None else refused

    def _stranger(self) -> Reply | None:
        """What one is told who may not ask."""
        token = self.server.token
        if token is None:
            host = self.headers.get("Host", "localhost")
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
            if name.strip("[]").lower() not in _LOCAL_NAMES and not _is_loopback(name.strip("[]")):
                return Refusal(403, f"without a token only this machine may ask, and not as {host!r}").reply
        elif self.path.partition("?")[0] not in OPEN_PATHS:
            scheme, _, given = self.headers.get("Authorization", "").partition(" ")
            known = hmac.compare_digest(given.strip().encode("latin-1", "replace"), token.encode())
            if scheme.lower() != "bearer" or not known:
                error = "this needs the token: send it as `Authorization: Bearer <token>`"
                return Refusal(401, error, {"WWW-Authenticate": "Bearer"}).reply
        return None

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Type": reply.kind, "Cache-Control": "no-store", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # What the standard library refuses: a request that is none, or a method nobody knows.
        self.close_connection = True
        self.command, self.request_version = self.command or "GET", self.protocol_version
        status = http.HTTPStatus(code)
        self._send(Refusal(405 if code == 501 else code, message or status.phrase).reply)

    def version_string(self) -> str:
        return "headwater"

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("http %s: %s", self.address_string(), format % args)
