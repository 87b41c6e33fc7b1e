"""Nothing changes when tasks are thrown away and restored between all steps, built in another process from pickled
bytes, or keep their rows at the other end of a wire."""

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from headwater.state.memory import MemoryBackend
from tests.conformance.driver import DriverPlayer
from tests.conformance.replay import Replay, Trace, build, check, load_trace, replay, trace_files
from tests.state.remote import RemoteBackend


class Servers:
    """Opens the remote back end of each task: a new client each time, of rows that outlive it."""

    def __init__(self) -> None:
        self._rows: dict[str, MemoryBackend] = {}
        self._clients: list[RemoteBackend] = []

    def __call__(self, task_id: str, stores: Iterable[str]) -> RemoteBackend:
        rows = self._rows.setdefault(task_id, MemoryBackend(stores))
        self._clients.append(RemoteBackend(stores, rows))
        return self._clients[-1]

    def round_trips(self) -> int:
        return sum((client.calls for client in self._clients), Counter()).total()


@dataclass
class Answer:
    replayed: Replay
    process: int
    round_trips: int


def replay_pickled(blob: bytes, trace: Trace, way: str) -> Answer:
    """Replay a trace with a topology and case from their pickled bytes."""
    topology, case = cloudpickle.loads(blob)
    servers = Servers()
    options: dict[str, Any] = {
        "restart-memory": {"restart": True, "memory": True},
        "restart-rocks": {"restart": True, "memory": False},
        "remote": {"backend": servers},
        "restart-remote": {"restart": True, "backend": servers},
    }[way]
    with DriverPlayer(trace, topology, case, **options) as player:
        return Answer(replay(trace, player), os.getpid(), servers.round_trips())


def one_random_trace_each() -> list[Path]:
    """Return the first trace with a random scenario of every topology, its only one where there is no such."""
    chosen: dict[str, Path] = {}
    for path in trace_files():
        topology, _, _ = path.stem.rpartition(".")
        if topology not in chosen or chosen[topology].stem.endswith(".0"):
            chosen[topology] = path
    return list(chosen.values())


@pytest.fixture(scope="module")
def other_process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.mark.parametrize(
    ("path", "way"),
    [
        *(pytest.param(path, "restart-memory", id=f"driver-restart-memory-{path.stem}") for path in trace_files()),
        *(
            pytest.param(path, way, id=f"driver-{way}-{path.stem}")
            for way in ("restart-rocks", "remote", "restart-remote")
            for path in one_random_trace_each()
        ),
    ],
)
def test_trace(path: Path, way: str, other_process: ProcessPoolExecutor) -> None:
    trace = load_trace(path)
    blob = cloudpickle.dumps(build(trace))
    answer = other_process.submit(replay_pickled, blob, trace, way).result()
    check(trace, answer.replayed, f"driver-{way}")
    assert answer.process != os.getpid()
    assert (answer.round_trips > 0) == ("remote" in way)
