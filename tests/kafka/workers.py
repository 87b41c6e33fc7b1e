"""Workers on Kafka that can be killed, stopped and told to leave: real processes, which end or stop themselves at a
named point of a commit, or are ended from outside; and the run that brings what they left to its end."""

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from headwater import Config
from headwater.streams.app import App
from headwater.streams.connection import GiveUp, Place, TaskCommit
from headwater.streams.kafka.connection import KafkaConnection
from headwater.streams.kafka.seat import Seat
from headwater.streams.kafka.settings import kafka_settings
from headwater.streams.kafka.slots import take_slot
from headwater.streams.kafka.writer import NewRecord, Writer
from headwater.streams.run import state_directory
from headwater.streams.worker import READ, Clock, Worker
from tests.crash.shop import Outcome, topology
from tests.crash.workers import Dying, Fleet
from tests.kafka.broker import Broker
from tests.kafka.shop import TASKS, config, outcome

# How long everything may take on a machine that has other things to do.
PATIENCE = 180.0
# The broker of the tests goes on without a member that it has not heard of for 3 s.
PAST_SESSION = 5.0
# A file in which workers note their commits.
COMMITS = "commits"
At = Callable[[str], Any]


class PointedWriter(Writer):
    """A writer that says where in a transaction it is."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str | None, at: At) -> None:
        super().__init__(settings, transactional_id)
        self._at = at

    def _send(self, producer: Producer, records: Iterable[NewRecord]) -> None:
        super()._send(producer, records)
        self._at("after-records")

    def _flush(self, producer: Producer) -> None:
        super()._flush(producer)
        self._at("after-flush")

    def _try(self, step: Callable[..., None], offsets: Sequence[TopicPartition], *arguments: object) -> None:
        super()._try(step, offsets, *arguments)
        self._at("after-offsets" if arguments else "after-transaction")


class PointedConnection(KafkaConnection):
    """A connection that says where in a commit it is, and notes when which tasks were committed."""

    def __init__(self, *given: Any, at: At, notes: Path) -> None:
        super().__init__(*given)
        self._at = at
        self._notes = notes
        self._writer = PointedWriter(given[0], self._writer._settings.get("transactional.id"), at)

    def commit(self, commits: Sequence[TaskCommit]) -> None:
        super().commit(commits)
        line = json.dumps([time.monotonic(), os.getpid(), [commit.task_id for commit in commits]])
        with self._notes.open("a") as notes:
            notes.write(line + "\n")

    def _keep(self, commit: TaskCommit, written: Mapping[Place, int]) -> None:
        super()._keep(commit, written)
        self._at("after-rows")


class Impatient(PointedConnection):
    """A broken protocol: offsets are taken as they are while the last owner's transaction is still open."""

    def prepare(self, *given: Any) -> None:
        super().prepare(*given)
        self._member.close()
        self._seat = ImpatientSeat(self._settings, self._app_id, self._member._topics)


class ImpatientSeat(Seat):
    def _sit(self) -> Consumer:
        self._settings["isolation.level"] = "read_uncommitted"
        return super()._sit()


class HardOfHearing(PointedConnection):
    """A worker that, when it was stopped between two commits, reads on for a while before it hears what its group has
    decided meanwhile."""

    _deleted = False

    def poll(self, give_up: GiveUp) -> bool:
        moved = super().poll(give_up)
        if len(self._offsets) == TASKS:
            before = time.monotonic()
            self._at("between")
            while before + PAST_SESSION / 2 < time.monotonic() < before + PATIENCE and not self._deleted:
                self._reader.fill()
                self._deleted = bool(self._reader.cut)
                self._look_into_deletions(give_up)
        return moved


def open_app(
    settings: Config,
    kafka: str,
    folder: Path,
    *,
    at: At = lambda point: None,
    at_once: int = READ,
    connect: Callable[..., KafkaConnection] = PointedConnection,
) -> App:
    """The application, as headwater.streams.run opens it, over a connection with points."""
    graph = topology()
    broker = f"kafka://{kafka}"
    slots = state_directory(settings, broker) / "slots"

    def make(clock: Clock) -> Worker:
        slot = take_slot(slots)
        connection = connect(
            kafka_settings(broker, settings.kafka), graph, settings, slot, at=at, notes=folder / COMMITS
        )
        try:
            return Worker(graph, settings, connection, slot.directory / "tasks", clock, at_once)
        except BaseException:
            connection.close()
            raise

    return App(make, graph)


def open_in_process(*given: Any, folder: Path, **options: Any) -> App:
    """The application in a worker's process of its own, which says in a file what goes on."""
    form = "%(asctime)s %(process)d %(message)s"
    logging.basicConfig(filename=folder / "workers.log", format=form, level=logging.INFO)
    return open_app(*given, folder=folder, **options)


@dataclass
class Stopping(Dying):
    """Stops its process (SIGSTOP) when a point is reached for the nth time; continued from outside, it gives the
    client's own threads a while to learn what the group has done meanwhile, before the commit goes on."""

    moment: float = 2.0

    def __call__(self, point: str) -> None:
        self.seen[point] += 1
        if point == self.point and self.seen[point] == self.nth:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(self.moment)


@dataclass
class KafkaFleet(Fleet):
    """The worker processes of the application on a broker."""

    kafka: str = ""
    connect: Callable[..., Any] = PointedConnection

    def _make(self, dying: Dying) -> Callable[[], App]:
        settings = config(self.folder, **self.changes)
        return partial(
            open_in_process,
            settings,
            self.kafka,
            folder=self.folder,
            at=dying,
            at_once=self.at_once,
            connect=self.connect,
        )

    def await_stop(self, process: BaseProcess) -> None:
        """Wait until a worker has stopped itself."""
        deadline = time.monotonic() + PATIENCE
        while _state(process) != "T":
            assert process.is_alive(), f"the worker has ended: see {self.folder / 'workers.log'}"
            assert time.monotonic() < deadline, "the worker does not stop"
            time.sleep(0.05)

    def suspend(self, process: BaseProcess) -> None:
        """SIGSTOP."""
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        self.await_stop(process)

    def resume(self, process: BaseProcess) -> None:
        """SIGCONT."""
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT)

    def leave(self, process: BaseProcess) -> None:
        """Have a worker commit and leave the group."""
        process.terminate()
        process.join(PATIENCE)
        assert process.exitcode == 0, f"a worker that was told to leave ended with {process.exitcode}"
        self.alive.remove(process)

    def commits(self) -> list[tuple[float, int, list[str]]]:
        """When which process has committed which tasks, so far; one that was killed may have left half a line."""
        notes = self.folder / COMMITS
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [json.loads(line) for line in lines if line.endswith("]]")]

    def await_commits(self, more: int = 3) -> None:
        """Wait until so many more commits have been made."""
        goal, deadline = len(self.commits()) + more, time.monotonic() + PATIENCE
        while len(self.commits()) < goal:
            self.check()
            assert time.monotonic() < deadline, f"nothing is committed any more: see {self.folder / 'workers.log'}"
            time.sleep(0.05)

    def await_tasks(self, process: BaseProcess) -> None:
        """Wait until a worker has committed every task that had anything to do before."""
        before, deadline = self.commits(), time.monotonic() + PATIENCE
        wanted = {task for _, _, tasks in before for task in tasks}
        while wanted:
            self.check()
            lately = self.commits()[len(before) :]
            wanted -= {task for _, pid, tasks in lately if pid == process.pid for task in tasks}
            assert time.monotonic() < deadline, f"a task is not taken over: see {self.folder / 'workers.log'}"
            time.sleep(0.1)

    def check(self) -> None:
        """Fail if a worker has ended by itself."""
        for process in self.alive:
            assert process.is_alive(), f"a worker ended with {process.exitcode}: see {self.folder / 'workers.log'}"


def _state(process: BaseProcess) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextlib.contextmanager
def fleet(kafka: Broker, folder: Path, **options: Any) -> Iterator[KafkaFleet]:
    """Give workers to a test and leave none behind."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = KafkaFleet(folder, kafka=kafka.bootstrap, **options)
    try:
        yield workers
    finally:
        for process in workers.alive:
            process.kill()
            process.join()


def finish(broker: Broker, folder: Path, **changes: Any) -> Outcome:
    """Let one worker that nobody disturbs do what is left, and return what came of it all."""
    with open_app(config(folder, **changes), broker.bootstrap, folder) as app:
        deadline = time.monotonic() + PATIENCE
        # Until the sessions of the dead are over, some tasks are theirs.
        while len(app.metrics()["tasks"]) < TASKS:
            assert time.monotonic() < deadline, "not all tasks start"
            time.sleep(0.1)
        app.wait_idle(PATIENCE)
        return outcome(broker, app)
