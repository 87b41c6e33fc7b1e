"""Running an application: from a topology, a broker's address and settings to an App."""

from __future__ import annotations

import dataclasses
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.app import App, State
from headwater.streams.broker import log_directory, open_log
from headwater.streams.log_connection import LogConnection, member_name
from headwater.streams.sockets import SOCKETS, serving
from headwater.streams.worker import READ, Clock, Worker

__all__ = ["open_app", "run", "state_directory"]


_log = logging.getLogger("headwater")

# A file in an application's directory while it is reset.
INTERRUPTED_RESET = "resetting"


def state_directory(config: Config, broker: str) -> Path:
    """Where an application keeps its state on this machine: beside the log, unless the settings say where."""
    base = log_directory(broker) if config.state_dir is None else Path(config.state_dir)
    return base / "apps" / config.app_id


def open_app(
    topology: Topology,
    config: Config,
    broker: str,
    *,
    clock: Clock | None = None,
    on_state: Callable[[State, State], Any] | None = None,
    at_once: int = READ,
    at: Callable[[str], Any] = lambda point: None,
) -> App:
    """An application on an embedded log, not started yet.

    A task processes `at_once` records before the worker looks at the clock again; `at` is called at the named points of
    a commit.
    """
    directory = state_directory(config, broker).absolute()

    def make(clock: Clock) -> Worker:
        if (directory / INTERRUPTED_RESET).exists():
            raise StreamsError(f"a reset of {config.app_id!r} was interrupted: run `headwater reset` again")
        described, log = topology.describe(), open_log(broker, create=False)
        connection = LogConnection(
            log, config.app_id, member_name(), described, exactly_once=config.exactly_once, at=at
        )
        try:
            _note_topology(directory, described)
            return Worker(topology, config, connection, directory / "tasks", clock, at_once)
        except BaseException:
            connection.close()
            raise

    def beside(app: App) -> AbstractContextManager[None]:
        # Asked first, so that nothing is made where there is no log.
        open_log(broker, create=False).close()
        return serving(app, directory / SOCKETS)

    return App(make, topology, clock=clock, on_state=on_state, beside=beside)


def _note_topology(directory: Path, described: str) -> None:
    """Keep what the application looks like, and say so when it has changed since it last ran."""
    note = directory / "topology.txt"
    before = note.read_text() if note.exists() else described
    if before != described:
        _log.warning("the topology has changed since it last ran; state and offsets in %s are taken over", directory)
    directory.mkdir(parents=True, exist_ok=True)
    note.write_text(described)


def run(
    topology: Topology,
    *,
    app_id: str | None = None,
    broker: str = "log://./.headwater",
    on: str = "local",
    config: Config | None = None,
    block: bool = True,
    on_state: Callable[[State, State], Any] | None = None,
) -> App:
    """Run a topology: until SIGINT or SIGTERM, or with `block=False` as a context manager that gives the application.

    >>> import tempfile
    >>> from headwater import Admin, StreamsBuilder, run
    >>> builder = StreamsBuilder()
    >>> builder.stream("in").to("out")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Admin(f"log://{folder}").create_topic("in")
    ...     with run(builder.build(), app_id="copy", broker=f"log://{folder}", block=False) as app:
    ...         app.state
    'running'
    """
    if on != "local":
        raise StreamsError(f"on={on!r} is not there yet: run it with on='local'")
    config = config or Config()
    if app_id is not None:
        config = dataclasses.replace(config, app_id=app_id)
    app = open_app(topology, config, broker, on_state=on_state)
    if block:
        with stopping_on_signals(app):
            app.start()
            app.join()
    return app


class Stoppable(Protocol):
    """What a signal can stop."""

    def request_stop(self) -> None:
        """Have it stop soon."""
        ...


class stopping_on_signals:
    """While in it, SIGINT and SIGTERM stop the application gracefully; a second SIGINT interrupts that."""

    def __init__(self, app: Stoppable) -> None:
        self._app = app
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        self._app.request_stop()
        if number == signal.SIGINT:
            signal.signal(number, self._before[number])

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
