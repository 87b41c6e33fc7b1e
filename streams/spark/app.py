"""An application at work on Spark, seen from the process that runs its query: what App is for a worker. It owns the
life of a session and its query (start, stop, the end), the socket on which others ask, and the figures; the query is
query.py's.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.app import App, State
from headwater.streams.metrics import DROPPED, LATE, WINDOW
from headwater.streams.sockets import SOCKETS, serving
from headwater.streams.spark.query import SparkBackend, SparkQuery
from headwater.streams.spark.session import broker_settings, open_session
from headwater.streams.spark.views import WorkerView

if TYPE_CHECKING:
    from headwater.streams.worker import Worker

__all__ = ["SparkApp", "figures"]

T = TypeVar("T")

log = logging.getLogger("headwater")

# How often is looked whether the query has ended, and how long a batch may take to end once it is told to stop.
_LOOK_SECONDS = 0.2
BATCH_SECONDS = 30.0


class SparkApp:
    """An application that runs as a Spark query in this process; `query` is its handle once it has started.

    Its socket is in `directory`; what Spark prints goes to the file `log`, if one is given.
    """

    def __init__(
        self,
        topology: Topology,
        config: Config,
        broker: str,
        directory: Path,
        *,
        checkpoint: str,
        master: str | None = None,
        trigger: timedelta | str | None = None,
        conf: Mapping[str, str] | None = None,
        log: Path | None = None,
        on_state: Callable[[State, State], Any] | None = None,
    ) -> None:
        self.topology = topology
        self.error: BaseException | None = None
        self.restarts = 0
        self._config = config
        self._broker = broker
        self._directory = directory
        self._checkpoint = checkpoint
        self._master = master
        self._trigger = trigger
        self._conf = dict(conf or {})
        self._log = log
        self._on_state = on_state
        self._state: State = "created"
        self._stop = threading.Event()
        self._query: SparkQuery | None = None
        self._last: dict[str, Any] | None = None
        self._open = ExitStack()
        self._thread = threading.Thread(target=self._watch, name="headwater-query", daemon=True)

    # ---- life --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._state

    @property
    def query(self) -> SparkQuery:
        """The handle of its query."""
        if self._query is None:
            raise StreamsError("the application has not been started")
        return self._query

    def start(self) -> SparkApp:
        """Open the session, unless there is one in this process, and start the query; raise what keeps it from that."""
        if self._state != "created":
            raise StreamsError(f"the application is {self._state}: it is started once, make a new one")
        self._enter("starting")
        try:
            spark = self._session()
            self._query = SparkBackend(spark).start(
                self.topology,
                self._config,
                broker=self._broker,
                checkpoint=self._checkpoint,
                trigger=self._trigger,
            )
            self._open.callback(self._query.stop)
            # It answers as an App does, whatever is asked.
            self._open.enter_context(serving(cast(App, self), self._directory / SOCKETS))
        except BaseException as fault:
            self.error = fault
            self._enter("failed")
            self._open.close()
            raise
        self._enter("running")
        self._thread.start()
        return self

    def _session(self) -> SparkSession:
        if SparkContext._active_spark_context is None:
            settings = {**broker_settings(self._broker), **self._conf}
            spark = open_session(self._config.app_id, master=self._master, conf=settings, log=self._log)
            self._open.callback(spark.stop)
            return spark
        spark = SparkSession.builder.getOrCreate()
        where = spark.conf.get("spark.master")
        if self._conf or self._master not in (None, where):
            raise StreamsError(
                f"There is a Spark session at {where} in this process already: stop it first, or leave out master= and "
                "conf= to run in it."
            )
        return spark

    def _watch(self) -> None:
        """Wait for the end of the query, or for the stop of it."""
        query = self.query
        try:
            while not self._stop.is_set() and not query.awaitTermination(_LOOK_SECONDS):
                pass
            if self._stop.is_set():
                self._enter("stopping")
                _let_batch_end(query)
                query.stop()
        except BaseException as fault:
            self.error = fault
        try:
            self._last = self._figures()
            self._open.close()
        except Exception as fault:
            # The JVM may have been told to stop too, as a service manager does with all processes of a service.
            if not self._stop.is_set():
                self.error = self.error or fault
        self._enter("stopped" if self.error is None else "failed")

    def request_stop(self) -> None:
        """Have it stop soon; fit for a signal handler."""
        self._stop.set()

    def stop(self, timeout: float | None = 60) -> None:
        """Let the batch that runs end, and end; a second call does nothing."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise StreamsError(f"the query has not stopped within {timeout} s: a step may hang")

    def join(self) -> None:
        """Wait until it has ended; raise what made it end, if that was a fault."""
        while self._thread.is_alive():
            self._thread.join(_LOOK_SECONDS)
        if self.error is not None:
            raise self.error

    def __enter__(self) -> SparkApp:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self.error is not None:
            raise self.error

    def _enter(self, state: State) -> None:
        before, self._state = self._state, state
        log.info("application is %s", state)
        if self._on_state is not None:
            self._on_state(state, before)

    # ---- what others may ask -----------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """A store's rows as of the last batch; read only, and a copy."""
        return self.query.store(name)

    def metrics(self) -> dict[str, Any]:
        """What has been counted so far, in the shape of App's; at the end: at last."""
        return self._last if self._last is not None else self._figures()

    def _figures(self) -> dict[str, Any]:
        query = self.query
        found = figures(query.metrics(), query.recentProgress, now=int(time.time() * 1000))
        return {"app-id": self._config.app_id, "state": self._state, "restarts-total": self.restarts, **found}

    def look(self, read: Callable[[Worker], T]) -> T:
        """What a function reads from stores, as of the last batch, as if a worker in this process had all of them."""
        return read(cast("Worker", WorkerView(self.query.stores)))


def _let_batch_end(query: SparkQuery) -> None:
    """Return when the batch that runs has ended: what it has done is not done again then."""

    def last() -> Any:
        progress = query.lastProgress
        return None if progress is None else progress.batchId

    before, give_up = last(), time.monotonic() + BATCH_SECONDS
    while query.isActive and query.status["isDataAvailable"] and last() == before and time.monotonic() < give_up:
        time.sleep(_LOOK_SECONDS / 10)


# ---- figures -----------------------------------------------------------------------------------------------------


def figures(counted: dict[str, Any], recent: Iterable[Any], now: int) -> dict[str, Any]:
    """What a query has counted, and what Spark's progress of its last batches says, as one look for `top`.

    Rates and times are those of the last ten seconds; the lag is that of the last batch, for sources that tell.
    """
    progress = list(recent)
    lately = [each for each in progress if now - _milliseconds(each.timestamp) <= WINDOW]
    began = min((_milliseconds(each.timestamp) for each in lately), default=now)
    took = [each.durationMs["triggerExecution"] for each in lately if "triggerExecution" in each.durationMs]
    last = progress[-1] if progress else None
    operators = [] if last is None else last.stateOperators
    return {
        "engine": "spark",
        **counted,
        "records-rate": 1000 * sum(map(_rows, lately)) / max(1000, now - began),
        "lag": 0 if last is None else sum(map(_behind, last.sources)),
        "latency-max-ms": None,
        "commits-total": counted["batches-total"],
        "commit-ms": sum(took) / len(took) if took else None,
        "state-bytes": sum(operator.memoryUsedBytes for operator in operators),
        DROPPED: counted[DROPPED],
        LATE: counted[LATE],
        "tasks": {},
    }


def _milliseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _offsets(text: str | None) -> dict[str, dict[str, int]]:
    """{topic: {partition: offset}}; {} for a source whose offsets are something else, as the clock's are."""
    found = None if text is None else json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(partitions, dict) for partitions in found.values()):
        return {}
    return found


def _rows(progress: Any) -> int:
    """The records that a batch has read from topics."""
    return sum(source.numInputRows for source in progress.sources if _offsets(source.endOffset))


def _behind(source: Any) -> int:
    """How many records of its topics the last batch has left."""
    done, there = _offsets(source.endOffset), _offsets(source.latestOffset)
    return sum(
        max(0, end - done.get(topic, {}).get(partition, 0))
        for topic, partitions in there.items()
        for partition, end in partitions.items()
    )
