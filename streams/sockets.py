"""Unix sockets, on which each worker answers questions and through which others find and ask them. It owns the files in
an application's directory and the framing, a line of JSON each way; what is asked and answered is queries.py's.

A worker's socket is `<state>/apps/<application>/sockets/<process>-<random>.sock`, in a directory that only its user may
enter. Where that path is too long for a socket, the socket is in a temporary directory and this is a link to it. A
worker that was killed leaves its file behind: nobody answers there, and a worker that starts later removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import StreamsError
from headwater.streams.queries import Ask, Found, Query, answer, merged

if TYPE_CHECKING:
    from headwater.streams.app import App

__all__ = ["SOCKETS", "ask_all", "query", "serving"]

# In an application's directory.
SOCKETS = "sockets"
_SUFFIX = ".sock"
# The shortest limit among the systems there are, with the closing zero.
_LONGEST_PATH = 103
_LONGEST_QUESTION = 1 << 20
# How long a worker may take to answer: it does so between two steps. On Spark rows are read from a checkpoint first.
TIMEOUT_SECONDS = 10.0
ROWS_SECONDS = 60.0
# A socket without a listener that is this old has been left behind; a younger one may be about to listen.
_STALE_SECONDS = 10.0


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, path: str, app: App) -> None:
        self.app = app
        super().__init__(path, _Conversation)


class _Conversation(socketserver.StreamRequestHandler):
    """One asker: a line with a question, a line with its answer, until the asker has enough."""

    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while line := self.rfile.readline(_LONGEST_QUESTION):
                self.wfile.write(answer(self.server.app, line) + b"\n")


@contextlib.contextmanager
def serving(app: App, directory: Path) -> Iterator[None]:
    """While in it, the application answers on a socket in the directory."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_stale(directory)
    path = directory / f"{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
    elsewhere: str | None = None
    if len(os.fsencode(path.absolute())) <= _LONGEST_PATH:
        server = _Server(str(path.absolute()), app)
    else:
        elsewhere = tempfile.mkdtemp(prefix="headwater-")
        server = _Server(f"{elsewhere}/{_SUFFIX}", app)
        path.symlink_to(f"{elsewhere}/{_SUFFIX}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="headwater-queries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        server.shutdown()
        server.server_close()
        thread.join()
        if elsewhere is not None:
            shutil.rmtree(elsewhere, ignore_errors=True)


def _remove_stale(directory: Path) -> None:
    for path in directory.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > _STALE_SECONDS:
                connection = _connect(path)
                if connection is None:
                    if path.is_symlink():
                        shutil.rmtree(Path(os.readlink(path)).parent, ignore_errors=True)
                    path.unlink()
                else:
                    connection.close()


def _connect(path: Path) -> socket.socket | None:
    """A connection to a worker's socket, None if nobody listens there."""
    target = os.readlink(path) if path.is_symlink() else str(path.absolute())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        connection.connect(target)
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        return None
    return connection


# ---- asking ------------------------------------------------------------------------------------------------------


def ask_all(directory: Path, question: Ask) -> dict[str, Any]:
    """The answers of all live workers in a directory, by worker; {} if there are none. An error is raised."""
    line = msgspec.json.encode(question) + b"\n"
    patience = ROWS_SECONDS if isinstance(question, Query) else TIMEOUT_SECONDS
    answers: dict[str, Any] = {}
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        try:
            connection = _connect(path)
            if connection is None:
                continue
            with connection, connection.makefile("rb") as lines:
                connection.settimeout(patience)
                connection.sendall(line)
                reply = lines.readline()
        except TimeoutError:
            raise StreamsError(f"worker {path.stem} has not answered within {patience:.0f} s") from None
        except (ConnectionResetError, BrokenPipeError):
            continue
        if not reply:
            # It has ended meanwhile.
            continue
        told = msgspec.json.decode(reply)
        if "error" in told:
            raise StreamsError(told["error"])
        answers[path.stem] = told["ok"]
    return answers


def query(directory: Path, question: Query) -> Found | None:
    """What the workers of an application find together; None if there are none."""
    answers = list(ask_all(directory, question).values())
    if not answers:
        return None
    return merged(answers, question.limit)
