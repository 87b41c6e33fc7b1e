"""A running application, seen from the process that runs it: the worker's loop in a thread, its state, its stores.

It owns the life of a worker (start, restart after a passing fault, stop) and how other threads reach it; the work is
the worker's.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Literal, TypeVar

from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.stores import public
from headwater.streams.task import committed_store
from headwater.streams.worker import Clock, SystemClock, Worker

__all__ = ["App", "State"]

log = logging.getLogger("headwater")

State = Literal["created", "starting", "running", "paused", "restarting", "stopping", "stopped", "failed"]
T = TypeVar("T")

# How long the loop rests when there was nothing to do, and how long it waits before it starts anew after a fault.
REST_SECONDS = 0.01
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0


class App:
    """An application at work in this process.

    >>> import tempfile
    >>> from headwater import Admin, Producer, StreamsBuilder, run
    >>> builder = StreamsBuilder()
    >>> counts = builder.stream("words").group_by_key().count(store="counts")
    >>> folder = tempfile.TemporaryDirectory()
    >>> broker = f"log://{folder.name}"
    >>> Admin(broker).create_topic("words")
    >>> with Producer(broker) as producer:
    ...     producer.send("words", key=b"tea", value=b'"x"')
    >>> with run(builder.build(), app_id="demo", broker=broker, block=False) as app:
    ...     app.wait_idle()
    ...     app.store("counts").get("tea")
    1
    >>> folder.cleanup()
    """

    def __init__(
        self,
        make: Callable[[Clock], Worker],
        topology: Topology,
        *,
        clock: Clock | None = None,
        on_state: Callable[[State, State], Any] | None = None,
    ) -> None:
        self.topology = topology
        self.clock: Clock = clock or SystemClock()
        self.error: BaseException | None = None
        self.restarts = 0
        self._make = make
        self._on_state = on_state
        self._state: State = "created"
        self._changed = threading.Condition()
        self._requests: queue.SimpleQueue[tuple[Callable[[Worker], Any], Future[Any]]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=self._run, name="headwater-worker", daemon=True)

    # ---- life --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._state

    def start(self) -> App:
        """Start the worker's thread; returns when it runs, or raises what kept it from running."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._state not in ("created", "starting", "restarting"))
        if self._state == "failed":
            raise self._failure()
        return self

    def request_stop(self) -> None:
        """Have it stop soon; fit for a signal handler."""
        self._stop.set()

    def stop(self, timeout: float | None = 60) -> None:
        """Commit, let the tasks go and end; a second call does nothing."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise StreamsError(f"the worker has not stopped within {timeout} s: a step may hang")

    def join(self) -> None:
        """Wait until it has ended; raise what made it end, if that was a fault."""
        while self._thread.is_alive():
            self._thread.join(0.2)
        if self._state == "failed":
            raise self._failure()

    def __enter__(self) -> App:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self._state == "failed":
            raise self._failure()

    def _failure(self) -> BaseException:
        assert self.error is not None
        return self.error

    def _enter(self, state: State) -> None:
        with self._changed:
            before, self._state = self._state, state
            self._changed.notify_all()
        if before != state:
            log.info("application is %s", state)
            if self._on_state is not None:
                self._on_state(state, before)

    # ---- the worker's thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        wait = FIRST_WAIT
        self._enter("starting")
        while not self._stop.is_set():
            worker: Worker | None = None
            try:
                worker = self._worker = self._make(self.clock)
                worker.rebalance()
                self._enter("running")
                while not self._stop.is_set():
                    if not self._serve(worker) and not worker.step():
                        self.clock.sleep(REST_SECONDS)
                    wait = FIRST_WAIT
                self._enter("stopping")
                worker.close()
                self._worker = None
            except OSError as fault:
                # A disk that is full, a file system that hiccups: what was committed is safe, and it may pass.
                self._give_up(worker)
                self.restarts += 1
                log.warning("%s; starting again in %.1f s", fault, wait)
                self._enter("restarting")
                self._stop.wait(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            except BaseException as fault:
                self.error = fault
                self._give_up(worker)
                self._refuse(fault)
                self._enter("failed")
                return
        self._refuse(StreamsError("the application has stopped"))
        self._enter("stopped")

    def _give_up(self, worker: Worker | None) -> None:
        self._worker = None
        if worker is not None:
            try:
                worker.close(commit=False)
            except Exception:
                log.exception("a task could not be closed after the fault that is reported")

    def _serve(self, worker: Worker) -> bool:
        """Answer one request of another thread, if there is one."""
        try:
            ask, future = self._requests.get_nowait()
        except queue.Empty:
            return False
        try:
            future.set_result(ask(worker))
        except BaseException as error:
            future.set_exception(error)
            raise
        return True

    def _refuse(self, why: BaseException) -> None:
        while not self._requests.empty():
            self._requests.get()[1].set_exception(why)

    def _ask(self, ask: Callable[[Worker], T]) -> T:
        if self._state in ("stopped", "failed"):
            raise self.error or StreamsError("the application has stopped")
        future: Future[T] = Future()
        self._requests.put((ask, future))
        return future.result()

    # ---- what others may ask -----------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit all tasks now."""
        self._ask(lambda worker: worker.commit())

    def wait_idle(self, timeout: float = 60) -> None:
        """Return when everything that is in the topics now has been processed and committed."""
        give_up = threading.Event()
        timer = threading.Timer(timeout, give_up.set)
        timer.start()
        try:
            while not self._ask(_idle):
                if give_up.is_set():
                    raise StreamsError(f"the application is still busy after {timeout} s")
        finally:
            timer.cancel()

    def pause(self) -> None:
        """Process nothing more until `resume()`; tasks are kept."""
        self._ask(lambda worker: setattr(worker, "paused", True))
        self._enter("paused")

    def resume(self) -> None:
        """Go on."""
        self._ask(lambda worker: setattr(worker, "paused", False))
        self._enter("running")

    def store(self, name: str) -> Any:
        """A store's rows as of the last commit, of the tasks that run here; read only."""
        worker = self._worker
        if worker is None:
            raise StreamsError(f"the application is {self._state}: its stores cannot be read now")
        spec = {**self.topology.stores, **self.topology.global_stores}.get(name)
        if spec is None:
            known = ", ".join(sorted({*self.topology.stores, *self.topology.global_stores})) or "none at all"
            raise StreamsError(f"there is no store {name!r}, only {known}")
        if name in self.topology.global_stores:
            assert worker.global_task is not None
            stores = [worker.global_task.stores[name]]
        else:
            running = [r for r in list(worker.tasks.values()) if name in r.task.stores]
            stores = [committed_store(spec, r.backend) for r in running]
        return public(spec, stores, self.clock.now, False)

    def metrics(self) -> dict[str, Any]:
        """What has been counted so far, for the application, its tasks, their steps and stores."""
        from headwater.streams.metrics import collect

        return self._ask(lambda worker: collect(worker, self))


def _idle(worker: Worker) -> bool:
    worker.step()
    worker.commit()
    return worker.idle() and not worker.waiting_for()
