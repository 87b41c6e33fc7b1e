"""Questions about a running application from outside its worker: the state of it, its metrics and its stores' rows. It
owns the questions and their answers as plain data; it knows no transport (sockets.py and http/ are two), and what a
store keeps is the store's.

A question is a JSON object; `ask` says which one. The answer is `{"ok": …}` or `{"error": "what, and what to do"}`.

| ask | other members | answer |
|---|---|---|
| `state` | | the application's id and state, restarts, process id |
| `metrics` | | what metrics.collect gives |
| `stores` | | name, kind and serdes of each store |
| `query` | the members of Query | rows |

Keys are JSON values; with `text` they are text as a person types it, which the store's serde decides how to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headwater.dsl.durations import LONG_MAX
from headwater.dsl.records import Windowed
from headwater.dsl.topology import StoreSpec, Topology
from headwater.errors import StreamsError
from headwater.state.backend import Backend
from headwater.streams.as_json import from_json, from_text, plain
from headwater.streams.changes import committed_store
from headwater.streams.stores import public

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.worker import Worker

__all__ = [
    "Ask",
    "Found",
    "Metrics",
    "Query",
    "State",
    "StoreView",
    "Stores",
    "answer",
    "answered",
    "find",
    "key_of",
    "merged",
    "store_spec",
]


class StoreView:
    """A store of a running application, which can only be read; see KeyValues, Windows, Sessions and Versions."""

    def __init__(self, app: App, name: str) -> None:
        self._app = app
        self._name = name
        # Says now, not at the first read, if there is no such store or it cannot be read.
        _show(store_spec(app.topology, name), [], app.clock.now)

    def _read(self, read: Callable[[Any], Any]) -> Any:
        return self._app.look(lambda worker: read(committed(worker, self._name)))

    def _rows(self, read: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
        return iter(self._read(lambda store: list(read(store))))

    def get(self, *args: Any, **options: Any) -> Any:
        """The value of a key, or of a key's window, None if there is none."""
        return self._read(lambda store: store.get(*args, **options))

    def range(self, *args: Any, **options: Any) -> Iterator[Any]:
        """(key, value) from a key to another, both included and None for no bound."""
        return self._rows(lambda store: store.range(*args, **options))

    def fetch(self, *args: Any, **options: Any) -> Iterator[Any]:
        """(Windowed, value) of a key's windows, or sessions."""
        return self._rows(lambda store: store.fetch(*args, **options))

    def all(self, **options: Any) -> Iterator[Any]:
        """Every row, in order of the serialised key."""
        return self._rows(lambda store: store.all(**options))


def store_spec(topology: Topology, name: str) -> StoreSpec:
    """The description of a store that may be asked about."""
    specs = {**topology.stores, **topology.global_stores}
    if name not in specs:
        raise StreamsError(f"there is no store {name!r}, only {', '.join(sorted(specs)) or 'none at all'}")
    return specs[name]


def _show(spec: StoreSpec, parts: list[Any], now: Callable[[], int]) -> Any:
    return public(spec, parts, now, False)


def committed(worker: Worker, name: str, backends: Iterable[Backend] | None = None) -> Any:
    """A store's rows as of the last commit, to be read before the worker's next step.

    They are those of the tasks it runs, unless the back ends to read are given.
    """
    spec = store_spec(worker.topology, name)
    if name in worker.topology.global_stores:
        assert worker.global_task is not None
        return _show(spec, [worker.global_task.stores[name]], worker.clock.now)
    if backends is None:
        backends = [running.backend for running in worker.tasks.values() if name in running.task.stores]
    return _show(spec, [committed_store(spec, backend) for backend in backends], worker.clock.now)


# ---- questions ---------------------------------------------------------------------------------------------------


class State(msgspec.Struct, tag_field="ask", tag="state"):
    """What is it doing?"""


class Metrics(msgspec.Struct, tag_field="ask", tag="metrics"):
    """What has it counted?"""


class Stores(msgspec.Struct, tag_field="ask", tag="stores"):
    """Which stores are there?"""


class Query(msgspec.Struct, tag_field="ask", tag="query", forbid_unknown_fields=True, omit_defaults=True):
    """Which rows are in a store?"""

    store: str
    how: Literal["get", "range", "all", "fetch"]
    key: Any = None
    lo: Any = None
    hi: Any = None
    start: int | None = None
    end: int | None = None
    since: int | None = None
    until: int | None = None
    as_of: int | None = None
    limit: int = 1000
    text: bool = False


Ask = State | Metrics | Stores | Query

_decode = msgspec.json.Decoder(Ask).decode
_encode = msgspec.json.encode


def answer(app: App, question: bytes) -> bytes:
    """The answer to a question, both as JSON; never raises."""
    try:
        reply = {"ok": answered(app, _decode(question))}
    except msgspec.DecodeError as error:
        reply = {"error": f"this is no question: {error}"}
    except Exception as error:
        reply = {"error": str(error) if isinstance(error, StreamsError) else f"{type(error).__name__}: {error}"}
    return _encode(reply)


def answered(app: App, question: Ask) -> Any:
    """The answer to a question."""
    match question:
        case State():
            return _state(app)
        case Metrics():
            if app.state in ("running", "paused", "stopping"):
                return {**_state(app), **app.metrics()}
            return {**_state(app), "tasks": {}}
        case Stores():
            specs = {**app.topology.stores, **app.topology.global_stores}
            return [
                {
                    "name": name,
                    "kind": spec.kind,
                    "key": repr(spec.key),
                    "value": repr(spec.value),
                    "global": name in app.topology.global_stores,
                }
                for name, spec in sorted(specs.items())
            ]
        case Query():
            if question.limit < 1:
                raise StreamsError(f"limit must be at least 1, but is {question.limit}")
            return app.look(lambda worker: find(worker, question))


def _state(app: App) -> dict[str, Any]:
    error = None if app.error is None else str(app.error)
    return {"state": app.state, "restarts-total": app.restarts, "pid": os.getpid(), "error": error}


def find(worker: Worker, query: Query, backends: Mapping[str, Backend] | None = None) -> dict[str, Any]:
    """The rows that were asked for, of the tasks here or of the given back ends by task; called between two steps."""
    spec = store_spec(worker.topology, query.store)
    keeping = [task.task_id for task in worker.plan.tasks if any(s.name == spec.name for s in task.stores())]
    if backends is None:
        backends = {task_id: worker.tasks[task_id].backend for task_id in keeping if task_id in worker.tasks}
    found = islice(_read(worker, spec, query, backends.values()), query.limit + 1)
    rows = [[_order(spec, key), _row(key, row, spec)] for key, row in found]
    return {
        "rows": rows[: query.limit],
        "more": len(rows) > query.limit,
        "global": query.store in worker.topology.global_stores,
        # Which tasks keep parts of the store, and which of them answer here: the asker sees what is missing.
        "tasks": keeping,
        "here": [task_id for task_id in keeping if task_id in backends],
    }


def _read(
    worker: Worker, spec: StoreSpec, query: Query, backends: Iterable[Backend]
) -> Iterator[tuple[Any, Any]]:
    """(key or Windowed, row) of what was asked for; rows of timestamped stores with their timestamps."""
    store = committed(worker, spec.name, backends)
    known = _READERS[spec.kind]
    if query.how not in known:
        raise StreamsError(f"{spec.name!r} is a {spec.kind} store, which has no {query.how}, but {', '.join(known)}")
    return known[query.how](store, spec, query)


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rows of a store from all workers, in order; whether there are more, and the tasks whose rows are missing.

    `stale` are the tasks whose rows are those of a copy, with how many records it is behind.
    """

    rows: list[dict[str, Any]]
    more: bool
    missing: list[str]
    stale: dict[str, int] = {}


def merged(answers: Sequence[dict[str, Any]], limit: int) -> Found:
    """What workers, at least one, have found together."""
    if answers[0]["global"]:
        # Every worker has all of it.
        return Found([row for _, row in answers[0]["rows"]], answers[0]["more"], [])
    found = [(order, row) for answer in answers for order, row in answer["rows"]]
    told = [task for answer in answers for task in answer["here"]]
    if len(set(told)) < len(told):
        # A task that moves just now has answered twice.
        found = list({msgspec.json.encode(order): (order, row) for order, row in found}.values())
    ordered = [row for _, row in sorted(found, key=lambda item: item[0])]
    missing = sorted({task for answer in answers for task in answer["tasks"]} - set(told))
    more = any(answer["more"] for answer in answers) or len(ordered) > limit
    stale = {task: lag for answer in answers for task, lag in answer.get("stale", {}).items()}
    return Found(ordered[:limit], more, missing, stale)


def _got(key: Any, row: Any) -> Iterator[tuple[Any, Any]]:
    return iter(()) if row is None else iter([(key, row)])


def _get(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    key = key_of(spec, query, query.key, "key")
    return _got(key, store.get(key, timestamps=_timestamped(spec)))


def _range(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    lo = None if query.lo is None else key_of(spec, query, query.lo, "lo")
    hi = None if query.hi is None else key_of(spec, query, query.hi, "hi")
    return store.range(lo, hi, timestamps=_timestamped(spec))  # type: ignore[no-any-return]


def _all(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    return store.all(timestamps=_timestamped(spec))  # type: ignore[no-any-return]


def _get_version(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    key = key_of(spec, query, query.key, "key")
    row = store.get(key, query.as_of)
    return _got(key, None if row is None else row[:2])


def _get_window(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    if query.start is None:
        raise StreamsError(f"{spec.name!r} keeps a value per window: say when it starts, or fetch all of the key")
    key = key_of(spec, query, query.key, "key")
    row = store.get(key, query.start, timestamps=spec.timestamped)
    return _got(Windowed(key, query.start, min(query.start + spec.size_ms, LONG_MAX)), row)


def _fetch_windows(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    lo = 0 if query.since is None else query.since
    hi = LONG_MAX if query.until is None else query.until
    key = key_of(spec, query, query.key, "key")
    return store.fetch(key, lo, hi, timestamps=spec.timestamped)  # type: ignore[no-any-return]


def _all_windows(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    return _starting(store.all(timestamps=spec.timestamped), query)


def _get_session(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    if query.start is None or query.end is None:
        raise StreamsError(f"{spec.name!r} keeps sessions: say when it starts and ends, or fetch all of the key")
    session = Windowed(key_of(spec, query, query.key, "key"), query.start, query.end)
    return _got(session, store.get(session))


def _fetch_sessions(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    return _starting(store.fetch(key_of(spec, query, query.key, "key")), query)


def _all_sessions(store: Any, spec: StoreSpec, query: Query) -> Iterator[tuple[Any, Any]]:
    return _starting(store.all(), query)


def _starting(rows: Iterable[tuple[Windowed, Any]], query: Query) -> Iterator[tuple[Any, Any]]:
    """The rows whose windows start in the time that is asked for, both ends included."""
    lo = -1 if query.since is None else query.since
    hi = LONG_MAX if query.until is None else query.until
    return ((window, row) for window, row in rows if lo <= window.start <= hi)


_Reader = Callable[[Any, StoreSpec, Query], Iterator[tuple[Any, Any]]]
_READERS: dict[str, dict[str, _Reader]] = {
    "key-value": {"get": _get, "range": _range, "all": _all},
    "timestamped": {"get": _get, "range": _range, "all": _all},
    "versioned": {"get": _get_version, "all": _all},
    "window": {"get": _get_window, "fetch": _fetch_windows, "all": _all_windows},
    "session": {"get": _get_session, "fetch": _fetch_sessions, "all": _all_sessions},
}


def _timestamped(spec: StoreSpec) -> bool:
    return spec.timestamped if spec.kind == "window" else spec.kind in ("timestamped", "versioned")


def _row(key: Any, row: Any, spec: StoreSpec) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if spec.kind in ("window", "session"):
        shown |= {"key": plain(key.key), "start": key.start, "end": key.end}
    else:
        shown["key"] = plain(key)
    if _timestamped(spec):
        return {**shown, "value": plain(row[0]), "timestamp": row[1]}
    return {**shown, "value": plain(row)}


def _order(spec: StoreSpec, key: Any) -> list[Any]:
    """What rows of several workers are sorted by: the serialised key, then the times."""
    if spec.kind == "window":
        return [spec.key.encode(key.key).hex(), key.start]
    if spec.kind == "session":
        return [spec.key.encode(key.key).hex(), key.end, key.start]
    return [spec.key.encode(key).hex()]


def key_of(spec: StoreSpec, query: Query, given: Any, which: str) -> Any:
    """A key for the store from what a question gives."""
    if given is None:
        raise StreamsError(f"the question needs a {which}")
    serde = spec.key
    try:
        key = from_text(serde, str(given)) if query.text else from_json(serde, given)
        serde.encode(key)
    except (ValueError, TypeError, StreamsError) as error:
        raise StreamsError(f"{given!r} is no key of {spec.name!r}, whose keys are {serde!r}: {error}") from error
    return key
