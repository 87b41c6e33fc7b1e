"""Asking a worker over HTTP, and a worker's knowledge of others as a test says."""

import http.client
import json
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

ADDRESS = "127.0.0.1:0"


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


def ask(url: str, path: str, method: str = "GET", headers: dict[str, str] | None = None, **parameters: Any) -> Answer:
    """Ask a worker; parameters that are no text become JSON, and `since` and `until` are from and to."""
    place = urlsplit(url)
    names = {"since": "from", "until": "to"}
    texts = {names.get(k, k): v if isinstance(v, str) else json.dumps(v) for k, v in parameters.items()}
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
    try:
        connection.request(method, path + (f"?{urlencode(texts)}" if texts else ""), headers=headers or {})
        reply = connection.getresponse()
        return Answer(reply.status, reply.read(), dict(reply.getheaders()))
    finally:
        connection.close()


def connected(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname, place.port), timeout=20)


def talk(url: str, *said: bytes) -> bytes:
    """All that is answered to some bytes, until the other side ends it."""
    with connected(url) as line:
        for piece in said:
            line.sendall(piece)
        heard = b""
        while piece := line.recv(1 << 16):
            heard += piece
    return heard


@dataclass
class Peer:
    worker: str
    endpoint: str | None = None
    tasks: tuple[str, ...] = ()
    standbys: dict[str, int] = field(default_factory=dict)


@dataclass
class Known:
    """What a worker knows of the others, as a test says."""

    worker: str
    peers: list[Peer] = field(default_factory=list)
    touch: bool = True

    def live(self) -> dict[str, Peer]:
        return {peer.worker: peer for peer in self.peers}

    def owners(self) -> dict[str, str]:
        return {task: peer.worker for peer in self.peers for task in peer.tasks}

    def in_touch(self) -> bool:
        return self.touch
