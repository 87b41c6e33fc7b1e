"""A running application, seen from the process that runs it: the worker's loop in a thread, its state, its stores.

It owns the life of a worker (start, restart after a passing fault, stop) and how other threads reach it; the work is
the worker's.
"""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Literal, TypeVar

from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.state.log.errors import StorageError
from headwater.streams.connection import Passing
from headwater.streams.metrics import collect
from headwater.streams.queries import StoreView
from headwater.streams.watch import TaskHung, Watch
from headwater.streams.worker import Clock, SystemClock, TopicsChanged, Worker

__all__ = ["App", "State"]

log = logging.getLogger("headwater")

State = Literal["created", "starting", "running", "paused", "restarting", "stopping", "stopped", "failed"]
T = TypeVar("T")

# How long the loop rests when there was nothing to do, and how long it waits before it starts anew after a fault.
REST_SECONDS = 0.01
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
LONG_TIME = float("inf")
# What another try does not help against.
_LASTING = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
    *(errno.ENOTEMPTY, errno.EEXIST, errno.EINVAL),
}


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
        beside: Callable[[App], AbstractContextManager[Any]] | None = None,
        task_timeout: float | None = None,
    ) -> None:
        self.topology = topology
        self.clock: Clock = clock or SystemClock()
        self.error: BaseException | None = None
        self.restarts = 0
        self._make = make
        self._on_state = on_state
        self._beside = beside
        self._watch = Watch(task_timeout, self._hang)
        self._paused = False
        self._last: dict[str, Any] | None = None
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
        state = self._state
        if state != "created":
            raise StreamsError(f"the application is {state}: an App is started once, make a new one")
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
            self._wait(timeout)
            if self._thread.is_alive() and self._watch.fault is None:
                raise StreamsError(f"the worker has not stopped within {timeout} s: a step may hang")

    def join(self) -> None:
        """Wait until it has ended; raise what made it end, if that was a fault."""
        self._wait(None)
        if self._state == "failed":
            raise self._failure()

    def _wait(self, timeout: float | None) -> None:
        """Wait for the worker's thread to end, but not for a step that hangs."""
        give_up = LONG_TIME if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive() and self._watch.fault is None and time.monotonic() < give_up:
            self._thread.join(0.2)

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

    def _hang(self, fault: TaskHung) -> None:
        """A step has not come back: the application has failed, whether it ever does or not; from another thread.

        Its task stays where it was committed last. Nobody else can have it while this process is there: one that does
        nothing else ends, and whoever has started it starts it again.
        """
        log.error("%s", fault)
        self.error = fault
        self._worker = None
        self._end("failed", fault)

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
        self._watch.start()
        try:
            with self._beside(self) if self._beside is not None else nullcontext():
                self._work()
        except BaseException as fault:
            self.error = fault
            self._end("failed", fault)
        else:
            self._end("stopped", StreamsError("the application has stopped"))
        finally:
            self._watch.close()

    def _work(self) -> None:
        """Run workers, one after the other, until one has stopped as it was told to; raise what cannot pass."""
        wait = FIRST_WAIT
        self._enter("starting")
        while not self._stop.is_set():
            worker: Worker | None = None
            began = time.monotonic()
            try:
                worker = self._make(self.clock)
                worker.watch = self._watch
                worker.stopping = self._stop.is_set
                worker.paused = self._paused
                worker.rebalance()
                self._worker = worker
                self._enter("paused" if self._paused else "running")
                while not self._stop.is_set():
                    if not self._serve(worker) and not worker.step():
                        self.clock.sleep(REST_SECONDS)
                self._enter("stopping")
                worker.commit()
                self._last = collect(worker, self)
                worker.close()
                self._worker = None
            except TopicsChanged as changed:
                log.warning("%s; starting again with as many tasks", changed)
                assert worker is not None
                self._commit_if_possible(worker)
                worker.close(commit=False)
                self._worker = None
            except BaseException as fault:
                passing = _may_pass(fault) or (worker is not None and worker.can_restore)
                if not passing:
                    # Before the worker goes: whoever asks it from now on must hear why.
                    self.error = fault
                self._give_up(worker)
                if not passing:
                    raise
                # A disk that is full, a file system that hiccups: what was committed is safe.
                if time.monotonic() - began > LONGEST_WAIT:
                    wait = FIRST_WAIT
                self.restarts += 1
                log.warning("%s Starting again in %.1f s.", fault, wait)
                self._enter("restarting")
                self._stop.wait(wait)
                wait = min(2 * wait, LONGEST_WAIT)

    def _commit_if_possible(self, worker: Worker) -> None:
        try:
            worker.commit()
        except Exception as fault:
            if not _may_pass(fault):
                raise
            log.warning("%s What was done since the last commit is done again.", fault)

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

    def _end(self, state: State, why: BaseException) -> None:
        self._enter(state)
        # After the state is set: whoever asks from now on sees it.
        self._refuse(why)

    def _refuse(self, why: BaseException) -> None:
        while True:
            try:
                self._requests.get_nowait()[1].set_exception(why)
            except queue.Empty:
                return

    def _ask(self, ask: Callable[[Worker], T]) -> T:
        """What a question gives, asked in the worker's thread between two steps; its fault is the worker's."""
        if threading.current_thread() is self._thread and self._worker is not None:
            return ask(self._worker)
        if self._thread.ident is None:
            raise StreamsError("the application has not been started")
        future: Future[T] = Future()
        self._requests.put((ask, future))
        if self._state in ("stopped", "failed"):
            self._refuse(self.error or StreamsError("the application has stopped"))
        return future.result()

    def look(self, read: Callable[[Worker], T]) -> T:
        """What a function reads from the worker between two steps; its faults are the caller's own."""
        if self._worker is None:
            raise self.error or StreamsError(f"the application is {self._state}: it cannot be asked now, try again")

        def attempt(worker: Worker) -> tuple[T | None, Exception | None]:
            try:
                return read(worker), None
            except Exception as error:
                return None, error

        found, error = self._ask(attempt)
        if error is not None:
            raise error
        return found  # type: ignore[return-value]  # without an error it is what was read

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
            while True:
                idle, busy = self._ask(_idle)
                if idle:
                    return
                if give_up.is_set():
                    raise StreamsError(f"the application is still busy after {timeout} s")
                if not busy:
                    # Another worker has yet to let a task go, or it is paused.
                    time.sleep(REST_SECONDS)
        finally:
            timer.cancel()

    def pause(self) -> None:
        """Process nothing more until `resume()`, also after a restart; tasks are kept."""
        self._pause(True)

    def resume(self) -> None:
        """Go on."""
        self._pause(False)

    def _pause(self, paused: bool) -> None:
        def change(worker: Worker) -> None:
            self._paused = worker.paused = paused
            self._enter("paused" if paused else "running")

        self._ask(change)

    def store(self, name: str) -> StoreView:
        """A store's rows as of the last commit, of the tasks that run here; read only.

        Each read is made between two steps of the worker, and is a copy: a long one holds it up.
        """
        return StoreView(self, name)

    def metrics(self) -> dict[str, Any]:
        """What has been counted so far, for the application, its tasks, their steps and stores; at the end: at last."""
        if self._state == "stopped" and self._last is not None:
            return self._last
        return self.look(lambda worker: collect(worker, self))


def _may_pass(fault: BaseException) -> bool:
    """Whether starting again may help: brokers that are away, and the operating system's faults, but for those a person
    must see to."""
    if isinstance(fault, Passing):
        return True
    if isinstance(fault, StorageError) and fault.__cause__ is not None:
        fault = fault.__cause__
    return isinstance(fault, OSError) and fault.errno not in _LASTING


def _idle(worker: Worker) -> tuple[bool, bool]:
    """Whether the worker has nothing left to do, and whether it has done anything just now."""
    busy = worker.step()
    busy = worker.commit() or busy
    return worker.idle() and not worker.waiting_for(), busy
