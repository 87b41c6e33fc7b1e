"""Several workers of one application on this machine, each a process of its own: Python threads share one core. It owns
their start, the restart of those that die, and the stop of all when one fails for good.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it comes without types

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.app import FIRST_WAIT, LONGEST_WAIT, App
from headwater.streams.faults import text_of
from headwater.streams.run import open_app, stopping_on_signals
from headwater.streams.watch import TaskHung

__all__ = ["Fleet"]

log = logging.getLogger("headwater")

# What a worker's process ends with when it has failed for good; it has said why through its pipe.
FAILED = 3
# And when one of its steps has not come back.
HUNG = 4
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Spawned, never forked: a forked child would keep the locks of a parent that has died.
_spawn = multiprocessing.get_context("spawn")


def work(blob: bytes, level: int, told: Connection) -> None:
    """A worker's process: run until told to stop by a signal, or until its parent is gone; say why, if it failed."""
    logging.basicConfig(level=level, format=f"%(levelname)s worker {os.getpid()}: %(message)s")
    try:
        topology, config, broker = cloudpickle.loads(blob)
        app = open_app(topology, config, broker)
        with stopping_on_signals(app):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            threading.Thread(target=_stop_with_parent, args=(app,), daemon=True).start()
            app.start()
            app.join()
        # One that was told to stop before it ran has counted nothing.
        with contextlib.suppress(StreamsError):
            told.send(app.metrics())
    except TaskHung:
        # Its message is in the log. Another process may have more luck, and the others need not stop for it.
        sys.exit(HUNG)
    except BaseException as error:
        told.send(str(error) if isinstance(error, StreamsError) else text_of(error))
        sys.exit(FAILED)


def _stop_with_parent(app: App) -> None:
    """Nobody would start this worker again, nor stop it: better it ends, after a last commit."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    app.request_stop()


@contextlib.contextmanager
def _holding_signals() -> Iterator[None]:
    """While in it, SIGINT and SIGTERM wait; a process started meanwhile has them wait until it is ready for them."""
    # It would undo the waiting if it was started along with the first process.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _numbered(config: Config, number: int) -> Config:
    """The settings of a fleet's worker: each answers at a port of its own, one after the other."""
    if config.listen is None or number == 0:
        return config
    host, _, port = config.listen.rpartition(":")
    return dataclasses.replace(config, listen=f"{host}:{int(port) + number if int(port) else 0}")


def _packed(topology: Topology, config: Config, broker: str) -> bytes:
    """What a worker's process is given; what cannot go there is named."""
    try:
        data: bytes = cloudpickle.dumps((topology, config, broker))
    except Exception as error:
        steps = topology.nodes.items()
        at = next((f"step {name!r}" for name, node in steps if not _can_travel(node)), "the application")
        raise StreamsError(
            f"{at} holds something that cannot be given to another process ({text_of(error)}): make it where it is "
            "used, inside the function, or in the init() of a processor; or start several processes, without --workers"
        ) from error
    return data


def _can_travel(thing: object) -> bool:
    try:
        cloudpickle.dumps(thing)
    except Exception:
        return False
    return True


class Fleet:
    """Workers of one application, kept alive until `stop()`.

    `last` are the metrics of the workers that have stopped as they were told to.
    """

    def __init__(self, topology: Topology, config: Config, broker: str, workers: int) -> None:
        self._blobs = [_packed(topology, _numbered(config, n), broker) for n in range(workers)]
        self._pipes: dict[int, Connection] = {}
        self.processes: list[BaseProcess | None] = [None] * workers
        self._began = [0.0] * workers
        self._waits = [FIRST_WAIT] * workers
        self._due = [0.0] * workers
        self._stopping = False
        self.last: list[dict[str, Any]] = []

    def start(self) -> Fleet:
        """Start all workers."""
        for number in range(len(self.processes)):
            self._start(number)
        return self

    def _start(self, number: int) -> None:
        ours, theirs = _spawn.Pipe(duplex=False)
        args = (self._blobs[number], log.getEffectiveLevel(), theirs)
        process = _spawn.Process(target=work, args=args, name=f"headwater-worker-{number}")
        with _holding_signals():
            process.start()
        theirs.close()
        self._pipes[number] = ours
        self.processes[number] = process
        self._began[number] = time.monotonic()

    def watch(self, timeout: float = 0.5) -> None:
        """Wait a little; start workers anew that have died, raise what made one fail for good."""
        alive = [process.sentinel for process in self.processes if process is not None]
        wait(alive, timeout) if alive else time.sleep(timeout)
        for number, process in enumerate(self.processes):
            if process is None:
                if time.monotonic() >= self._due[number] and not self._stopping:
                    self._start(number)
            elif not process.is_alive():
                self._ended(number, process)

    def _ended(self, number: int, process: BaseProcess) -> None:
        process.join()
        self.processes[number] = None
        failure = self._failure(number, process)
        if failure is not None:
            # What the others say at their end is, most likely, the same.
            with contextlib.suppress(StreamsError):
                self.stop()
            raise failure
        if not self._stopping:
            if time.monotonic() - self._began[number] > LONGEST_WAIT:
                self._waits[number] = FIRST_WAIT
            rest = self._waits[number]
            log.warning("worker %d died (exit code %s); starting it again in %.1f s", number, process.exitcode, rest)
            self._due[number] = time.monotonic() + rest
            self._waits[number] = min(2 * rest, LONGEST_WAIT)

    def _failure(self, number: int, process: BaseProcess) -> StreamsError | None:
        """Why a worker that has ended has failed for good, None if it has not."""
        with self._pipes.pop(number) as said:
            try:
                told = said.recv() if said.poll() else None
            except EOFError:
                told = None
        if process.exitcode == FAILED:
            return StreamsError(f"worker {number} has failed: {told or 'it did not say why'}")
        if told is not None:
            self.last.append(told)
        return None

    def request_stop(self) -> None:
        """Have all workers stop soon; fit for a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Watch over the workers until `request_stop()`, then stop them."""
        while not self._stopping:
            self.watch()
        self.stop()

    def stop(self, timeout: float = 60) -> None:
        """Let every worker commit and end, and raise what made one fail; those that take too long are killed."""
        self._stopping = True
        running = [(number, process) for number, process in enumerate(self.processes) if process is not None]
        for _, process in running:
            if process.is_alive():
                process.terminate()
        give_up = time.monotonic() + timeout
        failures = []
        for number, process in running:
            process.join(max(0.0, give_up - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
                failures.append(StreamsError(f"worker {number} has not stopped within {timeout} s and was killed"))
            failure = self._failure(number, process)
            if failure is not None:
                failures.append(failure)
        self.processes = [None] * len(self.processes)
        if failures:
            raise failures[0]
