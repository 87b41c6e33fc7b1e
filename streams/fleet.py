"""Several workers of one application on this machine, each a process of its own: Python threads share one core. It owns
their start, the restart of those that die, and the stop of all when one fails for good.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it comes without types

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.app import FIRST_WAIT, LONGEST_WAIT
from headwater.streams.run import open_app, stopping_on_signals

__all__ = ["Fleet"]

log = logging.getLogger("headwater")

# What a worker's process ends with when it has failed for good; it has said why through its pipe.
FAILED = 3
# Spawned, never forked: a forked child would keep the locks of a parent that has died.
_spawn = multiprocessing.get_context("spawn")


def work(blob: bytes, told: Connection) -> None:
    """A worker's process: run until told to stop by a signal; say why, if it was a fault."""
    topology, config, broker, serve = cloudpickle.loads(blob)
    app = open_app(topology, config, broker)
    try:
        with stopping_on_signals(app):
            app.start()
            if serve is not None:
                with serve(app):
                    app.join()
            else:
                app.join()
    except BaseException as error:
        told.send(f"{type(error).__name__}: {error}")
        sys.exit(FAILED)


class Fleet:
    """Workers of one application, kept alive until `stop()`.

    `serve` is called in each worker with its App and gives a context manager that runs beside it.
    """

    def __init__(
        self,
        topology: Topology,
        config: Config,
        broker: str,
        workers: int,
        serve: Callable[[Any], Any] | None = None,
    ) -> None:
        self._blob = cloudpickle.dumps((topology, config, broker, serve))
        self._pipes: dict[int, Connection] = {}
        self.processes: list[BaseProcess | None] = [None] * workers
        self._waits = [FIRST_WAIT] * workers
        self._due = [0.0] * workers
        self._stopping = False

    def start(self) -> Fleet:
        """Start all workers."""
        for number in range(len(self.processes)):
            self._start(number)
        return self

    def _start(self, number: int) -> None:
        ours, theirs = _spawn.Pipe(duplex=False)
        process = _spawn.Process(target=work, args=(self._blob, theirs), name=f"headwater-worker-{number}")
        process.start()
        theirs.close()
        self._pipes[number] = ours
        self.processes[number] = process

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
        said = self._pipes.pop(number)
        if process.exitcode == FAILED:
            why = said.recv() if said.poll() else "it did not say why"
            self.stop()
            raise StreamsError(f"worker {number} has failed: {why}")
        if not self._stopping:
            log.warning("worker %d ended with %s; starting it again", number, process.exitcode)
            self._due[number] = time.monotonic() + self._waits[number]
            self._waits[number] = min(2 * self._waits[number], LONGEST_WAIT)

    def request_stop(self) -> None:
        """Have all workers stop soon; fit for a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Watch over the workers until `request_stop()`, then stop them."""
        while not self._stopping:
            self.watch()
        self.stop()

    def stop(self, timeout: float = 60) -> None:
        """Let every worker commit and end; those that do not within the time are killed."""
        self._stopping = True
        running = [process for process in self.processes if process is not None]
        for process in running:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, 15)
        give_up = time.monotonic() + timeout
        for process in running:
            process.join(max(0.0, give_up - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self.processes = [None] * len(self.processes)
