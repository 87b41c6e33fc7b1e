"""Running an application: from a topology, a broker's address and settings to an App, or to a SparkApp."""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from headwater.dsl.config import Config
from headwater.dsl.options import check_flag
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.app import App, State
from headwater.streams.broker import DEFAULT_BROKER, is_kafka, log_directory, open_log
from headwater.streams.log_connection import LogConnection, member_name
from headwater.streams.plan import check_optimizations
from headwater.streams.sockets import SOCKETS, serving
from headwater.streams.worker import READ, Clock, Worker

if TYPE_CHECKING:
    from headwater.streams.http.rows import Places
    from headwater.streams.spark.app import SparkApp

__all__ = ["open_app", "open_spark_app", "run", "state_directory"]

# A file in an application's directory while it is reset.
INTERRUPTED_RESET = "resetting"


def state_directory(config: Config, broker: str) -> Path:
    """Where an application keeps its state on this machine: beside the log, unless the settings say where.

    With Kafka it is where the embedded log would be by default.
    """
    if config.state_dir is not None:
        base = Path(config.state_dir)
    else:
        base = log_directory(DEFAULT_BROKER if is_kafka(broker) else broker)
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
    """An application on an embedded log or on Kafka, not started yet.

    A task processes `at_once` records before the worker looks at the clock again; `at` is called at the named points of
    a commit on the embedded log.
    """
    check_optimizations(topology, config)
    directory = state_directory(config, broker).absolute()
    # Where this worker answers over HTTP, and what it knows of the others.
    endpoint: str | None = None
    roster: Places | None = None

    def make(clock: Clock) -> Worker:
        if (directory / INTERRUPTED_RESET).exists():
            raise StreamsError(f"a reset of {config.app_id!r} was interrupted: run `headwater reset` again")
        return make_on_kafka(clock) if is_kafka(broker) else make_on_log(clock)

    def make_on_log(clock: Clock) -> Worker:
        log = open_log(broker, create=False)
        connection = LogConnection(
            log,
            config.app_id,
            member_name(),
            directory,
            renamed=config.renamed,
            exactly_once=config.exactly_once,
            by_time=config.compat is None,
            at=at,
        )
        try:
            return Worker(topology, config, connection, directory / "tasks", clock, at_once)
        except BaseException:
            connection.close()
            raise

    def make_on_kafka(clock: Clock) -> Worker:
        from headwater.streams.kafka.connection import KafkaConnection
        from headwater.streams.kafka.slots import take_slot

        nonlocal roster
        slot = take_slot(directory / "slots")
        try:
            connection = KafkaConnection(settings, topology, config, slot, endpoint)
        except BaseException:
            slot.release()
            raise
        try:
            worker = Worker(topology, config, connection, slot.directory / "tasks", clock, at_once)
        except BaseException:
            connection.close()
            raise
        roster = connection.roster
        return worker

    @contextmanager
    def beside(app: App) -> Iterator[None]:
        nonlocal endpoint
        if not is_kafka(broker):
            # Asked first, so that nothing is made where there is no log.
            open_log(broker, create=False).close()
        with ExitStack() as stack:
            stack.enter_context(serving(app, directory / SOCKETS))
            if config.listen is not None:
                from headwater.streams.http.server import listening

                endpoint = stack.enter_context(
                    listening(app, config.listen, app_id=config.app_id, places=lambda: roster)
                )
            yield

    if is_kafka(broker):
        from headwater.streams.kafka.settings import kafka_settings

        settings = kafka_settings(broker, config.kafka)
    timeout = config.task_timeout
    return App(
        make,
        topology,
        clock=clock,
        on_state=on_state,
        beside=beside,
        task_timeout=None if timeout is None else timeout.total_seconds(),
    )


def open_spark_app(
    topology: Topology,
    config: Config,
    broker: str,
    *,
    master: str | None = None,
    checkpoint: str | Path | None = None,
    trigger: timedelta | str | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_state: Callable[[State, State], Any] | None = None,
) -> SparkApp:
    """An application on Spark, not started yet; its checkpoint is in its directory, unless one is given."""
    # First of all: it says so where Spark is not installed.
    from headwater.streams.spark.session import is_local

    directory = state_directory(config, broker).absolute()
    if checkpoint is None:
        if not is_local(master, conf or {}):
            raise StreamsError(
                "A checkpoint is needed on a cluster: name a directory that the driver and all executors reach, such "
                "as hdfs://… or a shared file system (--checkpoint DIR; in Python checkpoint=)."
            )
        checkpoint = directory / "spark"
    from headwater.streams.spark.app import SparkApp

    return SparkApp(
        topology,
        config,
        broker,
        directory,
        checkpoint=str(checkpoint),
        master=master,
        trigger=trigger,
        conf=conf,
        log=log,
        on_state=on_state,
    )


@overload
def run(
    topology: Topology,
    *,
    app_id: str | None = None,
    broker: str = DEFAULT_BROKER,
    on: Literal["local"] = "local",
    config: Config | None = None,
    block: bool = True,
    on_state: Callable[[State, State], Any] | None = None,
) -> App: ...


@overload
def run(
    topology: Topology,
    *,
    app_id: str | None = None,
    broker: str = DEFAULT_BROKER,
    on: Literal["spark"],
    config: Config | None = None,
    block: bool = True,
    on_state: Callable[[State, State], Any] | None = None,
    master: str | None = None,
    checkpoint: str | Path | None = None,
    trigger: timedelta | str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkApp: ...


def run(
    topology: Topology,
    *,
    app_id: str | None = None,
    broker: str = DEFAULT_BROKER,
    on: str = "local",
    config: Config | None = None,
    block: bool = True,
    on_state: Callable[[State, State], Any] | None = None,
    **spark: Any,
) -> App | SparkApp:
    """Run a topology: until SIGINT or SIGTERM, or with `block=False` as a context manager that gives the application.

    With `on="spark"` it runs as a Structured Streaming query: `master`, `checkpoint`, `trigger` (a timedelta or
    "available-now") and `conf` say where and how; see `docs/spark.md`.

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
    check_flag("run: block", block)
    config = config or Config()
    if app_id is not None:
        config = dataclasses.replace(config, app_id=app_id)
    app: App | SparkApp
    if on == "spark":
        app = open_spark_app(topology, config, broker, on_state=on_state, **spark)
    elif on != "local":
        raise StreamsError(f"on={on!r} is not there yet: run it with on='local' or on='spark'")
    elif spark:
        raise StreamsError(f"{', '.join(f'{name}=' for name in spark)} is for on='spark': leave it out")
    else:
        app = open_app(topology, config, broker, on_state=on_state)
    if block and on == "spark":
        # Before the handlers are set: Spark sets its own when a session starts.
        app.start()
    if block:
        with stopping_on_signals(app):
            if on == "local":
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
