"""The other end of HTTP: asking the workers of an application, wherever they are. It owns which of them is asked for
what, how redirects are followed, and how answers become one; what can be asked is queries.py's.

A key's rows are asked of one worker, which names another if it does not have them. Everything else is asked of all, and
merged. Workers that are not reached are passed over: the tasks they run are missing from what is found.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from headwater.errors import StreamsError
from headwater.streams.http.server import TOKEN
from headwater.streams.queries import Found, Query, merged

__all__ = ["RemoteApp"]

# How long a worker may take, how long a task may be on its way, and how often one may be sent on.
ANSWER_SECONDS, MOVING_SECONDS, HOPS = 15.0, 10.0, 5
_PARAMETERS = {"since": "from", "until": "to", "start": "start", "end": "end", "as_of": "as_of"}


class _Unreachable(Exception):
    """Nobody answers there."""


class _Nobody(StreamsError):
    """No worker answers anywhere."""


class _Worker(NamedTuple):
    """A worker that can be asked, and what it has said of itself: the copies it keeps, with their lag."""

    url: str
    standbys: Mapping[str, int]


class RemoteApp:
    """An application whose workers answer at URLs; they tell of the others.

    With `app_id`, a worker of another application is refused. The token is HEADWATER_TOKEN of the environment, unless
    given.
    """

    def __init__(self, urls: Sequence[str], *, app_id: str | None = None, token: str | None = None) -> None:
        self._urls = [_checked(url) for url in urls]
        self._app_id = app_id
        self._token = os.environ.get(TOKEN) if token is None else token

    # ---- questions ---------------------------------------------------------------------------------------------

    def name(self) -> str:
        """The application's id."""
        for url, _ in self._reachable():
            return str(self._ask(url, "/state", {})[1]["app-id"])
        raise self._nobody()

    def stores(self) -> list[dict[str, Any]]:
        """Name, kind and serdes of each store."""
        for url, _ in self._reachable():
            try:
                return list(self._ask(url, "/stores", {})[1])
            except _Unreachable:
                continue
        raise self._nobody()

    def metrics(self) -> list[dict[str, Any]]:
        """What each worker has counted; nothing if none can be reached."""
        found = []
        try:
            workers = self._workers()
        except _Nobody:
            return []
        for worker in workers:
            try:
                status, told = self._ask(worker.url, "/metrics", {"json": "1"})
            except _Unreachable:
                continue
            if status != 200:
                raise StreamsError(told["error"])
            found.append(told)
        return found

    def query(self, question: Query, *, stale: bool = False) -> Found:
        """What the workers find together; with `stale`, copies answer for tasks that nobody runs at the moment."""
        if question.how in ("get", "fetch"):
            found = self._routed(question, stale)
            if found is not None:
                return found
        return self._gathered(question, stale)

    # ---- one worker --------------------------------------------------------------------------------------------

    def _routed(self, question: Query, stale: bool) -> Found | None:
        """The rows of the worker that has the key; None if all must be asked, since nobody can say which has."""
        gives_up = time.monotonic() + MOVING_SECONDS
        while True:
            status, told = self._followed(_path(question), _parameters(question, stale))
            if status == 200:
                found = merged([_ordered(told)], question.limit)
                # Whoever fills the topic may partition it in a way of their own: then another has the key.
                return found if told["global"] or (found.rows and not found.missing) else None
            if status == 421:
                return None
            if status != 503 or time.monotonic() > gives_up:
                raise StreamsError(told["error"])
            time.sleep(0.2)

    def _followed(self, path: str, parameters: Mapping[str, str]) -> tuple[int, Any]:
        """The answer at the end of a way from worker to worker."""
        status, told = 421, {"error": ""}
        for start, _ in self._reachable():
            url: str | None = start
            for _ in range(HOPS):
                assert url is not None
                try:
                    status, told = self._ask(url, path, parameters)
                except _Unreachable:
                    status, told = 503, {"error": f"the worker at {url} has the key, but does not answer"}
                    break
                url = told.get("endpoint") if status == 421 else None
                if url is None:
                    break
            if status not in (421, 503):
                break
        return status, told

    def _reachable(self) -> Iterator[tuple[str, str]]:
        """The given workers that answer, and the addresses they go by."""
        any_there = False
        for url in self._urls:
            try:
                status, told = self._ask(url, "/state", {})
            except _Unreachable:
                continue
            if status != 200 or not isinstance(told, dict) or "app-id" not in told:
                raise StreamsError(f"{url} is no worker of Headwater's: correct the address.")
            if self._app_id not in (None, told["app-id"]):
                raise StreamsError(f"{url} is a worker of {told['app-id']!r}, not of {self._app_id!r}: correct either.")
            any_there = True
            yield url, told["endpoint"]
        if not any_there:
            raise self._nobody()

    def _nobody(self) -> _Nobody:
        places = ", ".join(self._urls)
        return _Nobody(f"No worker answers at {places}: start one that listens there, or correct the address.")

    # ---- all workers -------------------------------------------------------------------------------------------

    def _workers(self) -> list[_Worker]:
        """The given workers, and those they know of."""
        known: dict[str, _Worker] = {}
        others: dict[str, _Worker] = {}
        for url, own in self._reachable():
            standbys: Mapping[str, int] = {}
            try:
                peers = self._ask(url, "/workers", {})[1]
            except _Unreachable:
                continue
            for peer in peers:
                if peer["endpoint"] == own:
                    standbys = peer["standbys"]
                elif peer["endpoint"] is not None:
                    others[peer["endpoint"]] = _Worker(peer["endpoint"], peer["standbys"])
            # By the address that was given: the one it announces may not be reached from here.
            known[own] = _Worker(url, standbys)
        return list({**others, **known}.values())

    def _gathered(self, question: Query, stale: bool) -> Found:
        workers = self._workers()
        answers, fault = [], ""
        for worker in workers:
            try:
                status, told = self._ask(worker.url, _path(question), {**_parameters(question), "here": "1"})
            except _Unreachable:
                continue
            if status == 200:
                answers.append(_ordered(told))
            elif status == 503:
                fault = told["error"]
            else:
                raise StreamsError(told["error"])
        if not answers:
            raise StreamsError(fault) if fault else self._nobody()
        found = merged(answers, question.limit)
        if stale and found.missing:
            copies = [self._copy(workers, question, task) for task in found.missing]
            found = merged([*answers, *(copy for copy in copies if copy is not None)], question.limit)
        return found

    def _copy(self, workers: Sequence[_Worker], question: Query, task: str) -> dict[str, Any] | None:
        """The rows of the copy of a task that is least behind, None if there is none."""
        having = [worker for worker in workers if task in worker.standbys]
        for worker in sorted(having, key=lambda worker: worker.standbys[task]):
            try:
                status, told = self._ask(worker.url, _path(question), {**_parameters(question, True), "tasks": task})
            except _Unreachable:
                continue
            if status == 200 and not told["missing"]:
                return _ordered(told)
        return None

    # ---- over the wire -----------------------------------------------------------------------------------------

    def _ask(self, url: str, path: str, parameters: Mapping[str, str]) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        place = urlsplit(url)
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        connection = kind(place.hostname or "", place.port, timeout=ANSWER_SECONDS)
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            connection.request("GET", place.path.rstrip("/") + path + _query(parameters), headers=headers)
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise _Unreachable from error
        finally:
            connection.close()
        try:
            told = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise StreamsError(f"{url} is no worker of Headwater's: correct the address.") from error
        if reply.status in (401, 403):
            raise StreamsError(f"{url}: {told['error']}. It is taken from {TOKEN}.")
        return reply.status, told


def _checked(url: str) -> str:
    place = urlsplit(url)
    try:
        fine = place.scheme in ("http", "https") and place.hostname and place.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise StreamsError(f"{url!r} is no worker's address: write it like http://127.0.0.1:8080.")
    return url.rstrip("/")


def _path(question: Query) -> str:
    return f"/stores/{quote(question.store, safe='')}/{question.how}"


def _query(parameters: Mapping[str, str]) -> str:
    return f"?{urlencode(parameters)}" if parameters else ""


def _parameters(question: Query, stale: bool = False) -> dict[str, str]:
    keys = {name: getattr(question, name) for name in ("key", "lo", "hi") if getattr(question, name) is not None}
    given = {name: key if question.text else msgspec.json.encode(key).decode() for name, key in keys.items()}
    given |= {name: str(at) for field, name in _PARAMETERS.items() if (at := getattr(question, field)) is not None}
    given |= {"limit": str(question.limit), "order": "1"}
    return given | ({"text": "1"} if question.text else {}) | ({"stale": "ok"} if stale else {})


def _ordered(told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "rows": list(zip(told["order"], told["rows"], strict=True))}
