"""What is behind each path of a worker's HTTP endpoint, and what is said there: rows, or where they are, the state, the
metrics. It owns the paths, and how the worker is asked; rows are rows.py's, and sockets, limits and tokens server.py's.

| path | parameters | answer |
|---|---|---|
| `/stores` | | name, kind and serdes of each store |
| `/stores/<name>/get` | `key`; of windows `start`, of sessions `end` too, of versions `as_of` | at most one row |
| `/stores/<name>/range` | `lo`, `hi` | rows from key to key |
| `/stores/<name>/fetch` | `key`, `from`, `to` | a key's windows, or sessions |
| `/stores/<name>/all` | `from`, `to` | all rows |
| `/state`, `/workers` | | what it is doing; which workers there are, as far as it knows |
| `/metrics` | `json=1` | for Prometheus, or as JSON |
| `/healthz`, `/readyz` | | 200 or 503 |

Rows also take `limit`, `text=1` (keys are text, not JSON), `here=1` (of the tasks that run here, no redirects),
`tasks=0_1,…` (of these alone), `stale=ok` (a copy may answer) and `order=1` (with what the rows are sorted by).

200 has the rows, and the tasks whose rows are missing. 400: the question cannot be understood. 404: there is no such
store or path. 421: another worker has the key. 503: nobody can answer now; ask again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, unquote

from headwater.errors import SerdeError, StateError, StreamsError
from headwater.streams.http.prometheus import CONTENT_TYPE, exposition
from headwater.streams.http.replies import RETRY, Refusal, Reply, as_json
from headwater.streams.http.rows import ASKED, Places, Rows, allow, flag, question_of, scope_of
from headwater.streams.queries import Metrics, State, Stores, answered, store_spec

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.worker import Worker

__all__ = ["OPEN_PATHS", "Paths"]

log = logging.getLogger("headwater")
T = TypeVar("T")

# Whoever probes these has no token; they tell next to nothing.
OPEN_PATHS = ("/healthz", "/readyz")
# How long the worker may take to answer, between two steps, and how many may wait for it at once.
PATIENCE_SECONDS = 10.0
MOST_WAITING = 32


class Paths:
    """What one application answers; `endpoint` is where, as others reach it."""

    def __init__(self, app: App, app_id: str, places: Callable[[], Places | None]) -> None:
        self.endpoint = ""
        self._app = app
        self._app_id = app_id
        self._places = places
        self._stores = Rows(places)
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)

    def answer(self, target: str) -> Reply:
        """The answer for a path with its parameters; never raises."""
        try:
            return self._answer(target)
        except Refusal as refusal:
            return refusal.reply
        except Exception as error:
            log.exception("%s could not be answered", target.partition("?")[0])
            return Refusal(500, f"{type(error).__name__}: {error}").reply

    def _answer(self, target: str) -> Reply:
        path, _, query = target.partition("?")
        try:
            parts = [unquote(part, errors="strict") for part in path.strip("/").split("/")]
            given = _parameters(query)
        except ValueError as error:
            raise Refusal(400, f"the address cannot be read: {error}") from error
        match parts:
            case ["healthz"]:
                return self._health(given)
            case ["readyz"]:
                return self._readiness(given)
            case ["state"]:
                allow(given, set())
                told = answered(self._app, State())
                return as_json({"app-id": self._app_id, "endpoint": self.endpoint, **told})
            case ["workers"]:
                return self._workers(given)
            case ["metrics"]:
                return self._metrics(given)
            case ["stores"]:
                allow(given, set())
                return as_json(answered(self._app, Stores()))
            case ["stores", name, how] if how in ASKED:
                return self._rows(name, how, given, target)
        raise Refusal(
            404,
            f"there is nothing at {path}, only /stores, /stores/<name>/{'|'.join(ASKED)}, /state, /workers, /metrics, "
            "/healthz and /readyz",
        )

    # ---- how it is doing ---------------------------------------------------------------------------------------

    def _health(self, given: Mapping[str, str]) -> Reply:
        allow(given, set())
        state = self._app.state
        return as_json({"state": state}, 503 if state in ("failed", "stopped") else 200)

    def _readiness(self, given: Mapping[str, str]) -> Reply:
        allow(given, set())
        state = self._app.state
        if state != "running":
            return as_json({"state": state, "ready": False}, 503)
        waiting = self._look(lambda worker: worker.waiting_for())
        return as_json({"state": state, "ready": not waiting, "waiting-for": waiting}, 503 if waiting else 200)

    def _workers(self, given: Mapping[str, str]) -> Reply:
        allow(given, set())
        places = self._places()
        live = {} if places is None else places.live()
        return as_json(
            [
                {
                    "worker": peer.worker,
                    "endpoint": peer.endpoint,
                    "tasks": list(peer.tasks),
                    "standbys": dict(peer.standbys),
                }
                for peer in live.values()
            ]
        )

    def _metrics(self, given: Mapping[str, str]) -> Reply:
        allow(given, {"json"})
        counted = self._timed(lambda: answered(self._app, Metrics()))
        if flag(given, "json"):
            return as_json({"app-id": self._app_id, **counted})
        return Reply(200, exposition(self._app_id, counted).encode(), CONTENT_TYPE)

    # ---- asking the worker -------------------------------------------------------------------------------------

    def _look(self, read: Callable[[Worker], T]) -> T:
        """What a function reads from the worker between two steps."""

        def attempt(worker: Worker) -> tuple[T | None, Exception | None]:
            try:
                return read(worker), None
            except Exception as error:
                return None, error

        found, error = self._timed(lambda: self._app.look(attempt))
        if isinstance(error, StreamsError) and not isinstance(error, StateError | SerdeError):
            raise Refusal(400, str(error)) from error
        if error is not None:
            raise error
        return found  # type: ignore[return-value]  # without an error it is what was read

    def _timed(self, ask: Callable[[], T]) -> T:
        """What a question to the worker gives, unless it takes too long or the worker cannot be asked."""
        if not self._waiting.acquire(blocking=False):
            raise Refusal(503, f"{MOST_WAITING} questions wait for the worker: ask again later", RETRY)
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(ask())
            except BaseException as error:
                future.set_exception(error)
            finally:
                self._waiting.release()

        threading.Thread(target=run, name="headwater-question", daemon=True).start()
        try:
            return future.result(PATIENCE_SECONDS)
        except TimeoutError:
            why = f"the worker has not answered within {PATIENCE_SECONDS:.0f} s: a step may hang"
            raise Refusal(503, why, RETRY) from None
        except StreamsError as error:
            raise Refusal(503, str(error), RETRY) from error

    # ---- rows --------------------------------------------------------------------------------------------------

    def _rows(self, name: str, how: str, given: Mapping[str, str], target: str) -> Reply:
        try:
            store_spec(self._app.topology, name)
        except StreamsError as error:
            raise Refusal(404, str(error)) from error
        question, scope = question_of(name, how, given), scope_of(given, target)
        found = self._look(lambda worker: self._stores.read(worker, question, scope))
        if isinstance(found, Refusal):
            raise found
        order, rows = [item[0] for item in found["rows"]], [item[1] for item in found["rows"]]
        told = {"store": name, **found, "rows": rows, **({"order": order} if flag(given, "order") else {})}
        stale = found.get("stale", {})
        return as_json(told, headers={"Headwater-Lag": str(max(stale.values()))} if stale else {})


def _parameters(query: str) -> dict[str, str]:
    if not query:
        return {}
    pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=20)
    given = dict(pairs)
    if len(given) < len(pairs):
        raise ValueError("a parameter is given twice")
    return given
