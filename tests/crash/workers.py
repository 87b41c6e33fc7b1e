"""Workers that can be killed: real processes, which end themselves at a named point of a commit or are ended from
outside; and the run that brings what they left to its end."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from headwater import Config
from headwater.state.backend import Backend
from headwater.state.log import Files, Partition
from headwater.state.log.files import REAL_FILES
from headwater.streams.app import App
from headwater.streams.connection import TaskCommit
from headwater.streams.log_connection import LogConnection, member_name
from headwater.streams.run import state_directory, stopping_on_signals
from headwater.streams.task import TaskSpec
from headwater.streams.worker import READ, Clock, Worker
from tests.crash.shop import Input, Outcome, config, open_log, outcome, topology

SPAWN = multiprocessing.get_context("spawn")
# How long everything may take on a machine that has other things to do.
PATIENCE = 180.0


class Unchecked(LogConnection):
    """A broken protocol: nobody looks whether a task's rows, its offsets and the log's sequences fit together."""

    def check(self, spec: TaskSpec, path: Path) -> None:
        pass


class NoReplay(Unchecked):
    """A broken protocol: the outbox that an earlier owner left is not delivered."""

    def recover(self, task_id: str, backend: Backend) -> None:
        self._append = lambda *entry: None  # type: ignore[method-assign]
        try:
            super().recover(task_id, backend)
        finally:
            del self._append


class NoSequence(Unchecked):
    """A broken protocol: the log cannot know what it already has."""

    def _append(self, task_id: str, place: tuple[str, int], sequence: int, records: list[Any]) -> None:
        self._at("before-append")
        self._partition(*place).append(records)
        self._at("after-append")


class NoSync(LogConnection):
    """A broken protocol: what was read, or what was put out, is not made durable."""

    skipped: Sequence[str] = ()
    _syncing = "outputs"

    def _partition(self, topic: str, partition: int) -> Partition:
        found = super()._partition(topic, partition)
        found.sync = lambda: found.end if self._syncing in self.skipped else Partition.sync(found)
        return found

    def commit(self, commits: Sequence[TaskCommit]) -> None:
        self._syncing = "inputs"
        super().commit(commits)

    def _commit_once(self, commits: Sequence[TaskCommit]) -> None:
        self._syncing = "outputs"
        super()._commit_once(commits)


class NoInputSync(NoSync):
    skipped = ("inputs",)


class NoOutputSync(NoSync):
    skipped = ("outputs",)


def tasks_directory(settings: Config, folder: Path) -> Path:
    return state_directory(settings, f"log://{folder / 'log'}") / "tasks"


def open_app(
    settings: Config,
    folder: Path,
    files: Files = REAL_FILES,
    *,
    at: Callable[[str], Any] = lambda point: None,
    at_once: int = READ,
    connect: Callable[..., LogConnection] = LogConnection,
) -> App:
    """The application in a folder, as headwater.streams.run opens it, over other files and another connection."""
    graph = topology()
    state = tasks_directory(settings, folder)

    def make(clock: Clock) -> Worker:
        connection = connect(
            open_log(folder, files),
            settings.app_id,
            member_name(),
            state.parent,
            exactly_once=settings.exactly_once,
            at=at,
        )
        try:
            return Worker(graph, settings, connection, state, clock, at_once)
        except BaseException:
            connection.close()
            raise

    return App(make, graph)


@dataclass
class Dying:
    """Kills its process when a point is reached for the nth time; each point takes a moment, so that kills from outside
    fall between the steps of a commit too."""

    point: str | None = None
    nth: int = 1
    moment: float = 0.001
    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, point: str) -> None:
        self.seen[point] += 1
        if point == self.point and self.seen[point] == self.nth:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.moment)


def die_with_the_test() -> None:
    """Leave no worker behind when the test's own process is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def work(make: Callable[..., App], told: Connection) -> None:
    """A worker's process."""
    threading.Thread(target=die_with_the_test, daemon=True).start()
    app = make()
    with stopping_on_signals(app):
        app.start()
        # Nobody listens where the test did not wait.
        with suppress(BrokenPipeError):
            told.send("running")
        app.join()


@dataclass
class Fleet:
    """The worker processes of the application in a folder."""

    folder: Path
    files: Files = REAL_FILES
    connect: Callable[..., LogConnection] = LogConnection
    at_once: int = 5
    changes: dict[str, Any] = field(default_factory=dict)
    alive: list[BaseProcess] = field(default_factory=list)
    kills: int = 0

    def start(self, dying: Dying | None = None, *, wait: bool = True) -> BaseProcess:
        """Start one more worker; returns when it runs or has died already, unless told not to wait."""
        ours, theirs = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=work, args=(self._make(dying or Dying()), theirs))
        process.start()
        theirs.close()
        self.alive.append(process)
        give_up = time.monotonic() + PATIENCE
        # There is something to read when it runs, and when it is dead.
        while wait and not ours.poll(0.1):
            assert time.monotonic() < give_up, "a worker does not start"
        return process

    def _make(self, dying: Dying) -> Callable[[], App]:
        """What a worker's process calls to open the application."""
        return partial(
            open_app,
            config(self.folder, **self.changes),
            self.folder,
            self.files,
            at=dying,
            at_once=self.at_once,
            connect=self.connect,
        )

    def kill(self, process: BaseProcess) -> None:
        """kill -9."""
        process.kill()
        self.died(process)

    def died(self, process: BaseProcess) -> None:
        """Wait for a worker's death by its own hand or ours; fail if it ends in another way."""
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL, f"a worker ended with {process.exitcode} instead of being killed"
        self.alive.remove(process)
        self.kills += 1

    def end(self) -> None:
        """Kill all that are left."""
        for process in list(self.alive):
            self.kill(process)


@contextmanager
def fleet(*args: Any, **options: Any) -> Iterator[Fleet]:
    """Give workers to a test and leave none behind."""
    workers = Fleet(*args, **options)
    try:
        yield workers
    finally:
        for process in workers.alive:
            process.kill()
            process.join()


def finish(folder: Path, files: Files = REAL_FILES, **options: Any) -> Outcome:
    """Let one worker that nobody disturbs do what is left, and return what came of it all."""
    connect = options.pop("connect", LogConnection)
    with open_app(config(folder, **options), folder, files, connect=connect) as app:
        app.wait_idle(PATIENCE)
        with open_log(folder, files) as log:
            return outcome(log, app)


def prepared(given: Input, folder: Path) -> Path:
    """Make a log with all of the input."""
    with open_log(folder) as log:
        given.make_topics(log)
        given.produce(log)
    return folder


def undisturbed(given: Input, folder: Path) -> Outcome:
    """Return what comes of the input when one worker does all of it in one go."""
    return finish(prepared(given, folder))
