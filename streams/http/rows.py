"""Rows over HTTP: whose they are, who may speak for them, and where they are if not here. It owns the parameters of a
question about a store and the choice between an answer, a redirect and a refusal; reading the rows is queries.py's.

A worker answers for the tasks that it runs and that, for all it knows, nobody has taken over. A key belongs to one
task: who does not run it answers 421, with the place of who does, if that is known, or 503 while it is on its way. Rows
of a copy are given only when `stale=ok` asks for them, and then with the number of records it is behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from headwater.dsl.durations import LONG_MAX
from headwater.errors import StreamsError
from headwater.state.backend import Backend
from headwater.streams.connection import Standby
from headwater.streams.http.replies import RETRY, Refusal
from headwater.streams.queries import Query, find, key_of, store_spec
from headwater.streams.routing import keepers, task_of

if TYPE_CHECKING:
    from headwater.streams.worker import Worker

__all__ = ["ASKED", "Peer", "Places", "Rows", "Scope", "allow", "flag", "question_of", "scope_of"]

MOST_ROWS = 10_000
_COMMON = {"limit", "text", "here", "tasks", "stale", "order"}
# Which parameters each way to ask has, besides.
ASKED = {
    "get": {"key", "start", "end", "as_of"},
    "range": {"lo", "hi"},
    "fetch": {"key", "from", "to"},
    "all": {"from", "to"},
}
_FIELDS = {"from": "since", "to": "until"}


class Peer(Protocol):
    """A worker, as the others know it."""

    @property
    def worker(self) -> str: ...
    @property
    def endpoint(self) -> str | None: ...
    @property
    def tasks(self) -> Collection[str]: ...
    @property
    def standbys(self) -> Mapping[str, int]: ...


class Places(Protocol):
    """What a worker knows of all; on Kafka it is the roster. All of it may be asked from any thread."""

    @property
    def worker(self) -> str:
        """This worker's own id."""
        ...

    def live(self) -> Mapping[str, Peer]:
        """The workers there are, by id."""
        ...

    def owners(self) -> Mapping[str, str]:
        """The worker that runs each task, as far as it is known."""
        ...

    def in_touch(self) -> bool:
        """Whether this worker can be sure that its tasks are still its own."""
        ...


class Scope(NamedTuple):
    """Whose rows are meant: those of the key's task, of all that are here, or of these; and whether copies will do."""

    here: bool
    tasks: frozenset[str] | None
    stale: bool
    target: str  # the path and its parameters, for a redirect


class Rows:
    """What one worker says about rows; `places` gives what it knows of the others, None for nothing."""

    def __init__(self, places: Callable[[], Places | None]) -> None:
        self._places = places

    def read(self, worker: Worker, question: Query, scope: Scope) -> dict[str, Any] | Refusal:
        """The rows of the tasks that this worker may speak for, or why there are none; called between two steps."""
        name = question.store
        if name in worker.topology.global_stores:
            return {**find(worker, question), "missing": []}
        if not store_spec(worker.topology, name).changelog or name in worker.topology.source_changelogs:
            scope = scope._replace(stale=False)  # copies do not follow these
        places = self._places()
        keeping = [task.task_id for task in keepers(worker.plan, name)]
        wanted, routed = self._wanted(worker, question, scope, keeping)
        own = self._own(worker, places)
        copies: Mapping[str, Standby] = worker.standbys if scope.stale else {}
        backends: dict[str, Backend] = {task: copies[task].backend for task in wanted if task in copies}
        backends |= {task: own[task] for task in wanted if task in own}
        if routed and not backends:
            return self._elsewhere(places, wanted[0], scope)
        missing = [task for task in wanted if task not in backends]
        stale = {task: copies[task].lag for task in backends if task not in own}
        told = {**find(worker, question, backends), "tasks": wanted, "missing": missing}
        return {**told, "stale": stale} if stale else told

    def _wanted(self, worker: Worker, question: Query, scope: Scope, keeping: list[str]) -> tuple[list[str], bool]:
        """The tasks whose rows are meant, and whether it is the one that a key belongs to."""
        if scope.tasks is not None:
            if not scope.tasks <= set(keeping):
                raise StreamsError(f"tasks={','.join(sorted(scope.tasks))}: only {', '.join(keeping)} keep the store")
            return [task for task in keeping if task in scope.tasks], False
        if question.key is None or scope.here:
            return keeping, False
        spec = store_spec(worker.topology, question.store)
        task = task_of(worker.plan, question.store, key_of(spec, question, question.key, "key"))
        return (keeping, False) if task is None else ([task], True)

    def _own(self, worker: Worker, places: Places | None) -> dict[str, Backend]:
        """The back ends of the tasks that run here, and nowhere else for all that is known."""
        if places is None:
            return {task: running.backend for task, running in worker.tasks.items()}
        if not places.in_touch():
            return {}
        owners, me = places.owners(), places.worker
        return {task: running.backend for task, running in worker.tasks.items() if owners.get(task, me) == me}

    def _elsewhere(self, places: Places | None, task: str, scope: Scope) -> Refusal:
        if places is None:
            why = f"task {task} has the key, and another worker runs it; which one is not known"
            return Refusal(421, why, task=task)
        live, owner = places.live(), places.owners().get(task)
        if owner is not None and owner in live and owner != places.worker and places.in_touch():
            return self._redirect(task, live[owner], f"task {task} has the key, and worker {owner} runs it", scope)
        copies = sorted((peer.standbys[task], peer.worker) for peer in live.values() if task in peer.standbys)
        if scope.stale:
            for _, name in copies:
                if name != places.worker and live[name].endpoint is not None:
                    return self._redirect(task, live[name], f"worker {name} has a copy of task {task}", scope)
        if places.in_touch():
            why = f"task {task} has the key, and is on its way to a worker"
        else:
            why = "this worker has not heard from Kafka for a while, and may have lost the task that has the key"
        told = [{"worker": name, "endpoint": live[name].endpoint, "lag": lag} for lag, name in copies]
        return Refusal(503, why, RETRY, task=task, copies=told)

    def _redirect(self, task: str, peer: Peer, why: str, scope: Scope) -> Refusal:
        if peer.endpoint is None:
            return Refusal(421, f"{why}, but answers no questions", task=task, worker=peer.worker)
        headers = {"Location": peer.endpoint.rstrip("/") + scope.target}
        return Refusal(421, f"{why}: ask it", headers, task=task, worker=peer.worker, endpoint=peer.endpoint)


# ---- parameters --------------------------------------------------------------------------------------------------


def allow(given: Mapping[str, str], known: set[str]) -> None:
    """Refuse parameters that are not known."""
    unknown = sorted(given.keys() - known)
    if unknown:
        raise Refusal(400, f"there is no parameter {unknown[0]} here, only {', '.join(sorted(known)) or 'none at all'}")


def flag(given: Mapping[str, str], name: str) -> bool:
    """Whether a parameter is 1; 0 if it is left out."""
    text = given.get(name, "0")
    if text not in ("0", "1"):
        raise Refusal(400, f"{name}={text} is not understood: write {name}=1, or leave it out")
    return text == "1"


def _whole(given: Mapping[str, str], name: str, most: int) -> int:
    text = given[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
        raise Refusal(400, f"{name}={text} is not understood: write a whole number up to {most}")
    return int(text)


def scope_of(given: Mapping[str, str], target: str) -> Scope:
    """Whose rows the parameters mean."""
    if given.get("stale", "ok") != "ok":
        raise Refusal(400, f"stale={given['stale']} is not understood: write stale=ok, or leave it out")
    tasks = frozenset(given["tasks"].split(",")) if "tasks" in given else None
    return Scope(flag(given, "here"), tasks, "stale" in given, target)


def question_of(store: str, how: str, given: Mapping[str, str]) -> Query:
    """The question that the parameters ask."""
    allow(given, _COMMON | ASKED[how])
    text = flag(given, "text")
    members: dict[str, Any] = {}
    for name in sorted(ASKED[how] & given.keys()):
        if name not in ("key", "lo", "hi"):
            # Milliseconds since 1970.
            members[_FIELDS.get(name, name)] = _whole(given, name, LONG_MAX)
        elif text:
            members[name] = given[name]
        else:
            try:
                members[name] = msgspec.json.decode(given[name])
            except msgspec.DecodeError:
                raise Refusal(
                    400, f'{name}={given[name]} is no JSON: put text into quotes ({name}="…"), or add text=1'
                ) from None
    if "key" in ASKED[how] and members.get("key") is None:
        raise Refusal(400, f"{how} needs a key: /stores/{store}/{how}?key=…")
    limit = _whole(given, "limit", MOST_ROWS) if "limit" in given else 1000
    if limit == 0:
        raise Refusal(400, "limit must be at least 1, but is 0")
    return Query(store, how, text=text, limit=limit, **members)  # type: ignore[arg-type]  # one of the four
