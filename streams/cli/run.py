"""`headwater run`: an application at work, in this process, in several or on Spark, until it is told to stop. It owns
the options, the line that says how it is doing and the summary; the work is App's, Fleet's and SparkApp's."""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import StreamsError, TopologyError
from headwater.streams.cli.options import (
    add_broker,
    add_command,
    add_json,
    add_on,
    broker,
    count,
    duration,
    setting,
    trigger,
)
from headwater.streams.cli.output import print_json
from headwater.streams.cli.settings import settings

if TYPE_CHECKING:
    from headwater.dsl.config import Config
    from headwater.dsl.topology import Topology
    from headwater.streams.cli.options import Commands

__all__ = ["add", "add_application", "application"]

_REFRESH = 0.5


def add(commands: "Commands") -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "run",
        _run,
        "run an application until it is told to stop",
        """
headwater run revenue.py
headwater run revenue.py --workers 4 --broker log:///var/lib/shop
headwater run revenue.py:topology --app-id revenue-2 --at-least-once --commit-interval 1s
headwater run revenue.py --set on_processing_error=dead-letter --set dead_letters=revenue-errors
headwater run revenue.py --set commit.interval.ms=200   # Kafka Streams' own names
headwater run revenue.py --bootstrap-server host:9092   # against Kafka: start as many as you like, anywhere
headwater run revenue.py --broker kafka://host:9092 --standbys 1 --listen 127.0.0.1:8080 --instance-id worker-1
headwater run revenue.py --broker kafka://host:9093 --set security.protocol=SSL --set ssl.ca.location=ca.pem
headwater run revenue.py --on spark                     # as a Structured Streaming query on all cores
headwater run revenue.py --on spark --trigger available-now
headwater run revenue.py --on spark --master spark://host:7077 --checkpoint hdfs:///checkpoints/revenue \\
    --broker kafka://host:9092 --trigger 5s --conf spark.executor.memory=4g
""",
        "SIGINT (Ctrl-C) and SIGTERM stop it after a last commit. See `headwater top` and `headwater query`.",
    )
    add_application(parser)
    parser.add_argument("--workers", type=count, metavar="N", help="so many processes share the tasks (1)")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell of tasks that start and stop, and of Spark")
    add_broker(parser)
    add_json(parser, "print the summary as JSON, for scripts")
    kafka = parser.add_argument_group("with Kafka, on --on local")
    kafka.add_argument(
        "--standbys", type=count, metavar="N", help="so many other workers keep a copy of each task's state (0)"
    )
    kafka.add_argument(
        "--instance-id",
        metavar="NAME",
        help="this worker's own name: back under it in time, it has its tasks again without a rebalance",
    )
    kafka.add_argument(
        "--listen", metavar="HOST:PORT", help="answer questions over HTTP there (`headwater query`, metrics, health)"
    )
    add_on(parser, "local (the default), or spark: as a Structured Streaming query")
    spark = parser.add_argument_group("with --on spark")
    spark.add_argument(
        "--master",
        metavar="URL",
        help="local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT (default: all cores of this machine)",
    )
    spark.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="where Spark keeps state and progress; on a cluster, what all hosts reach "
        "(default: apps/ID/spark beside the log, or in ./.headwater)",
    )
    spark.add_argument(
        "--trigger",
        type=trigger,
        metavar="TIME",
        help="how often a batch starts, such as 5s (default: as soon as there is something to do); "
        "available-now: process what is there, and end",
    )
    spark.add_argument(
        "--conf",
        type=setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark's; may be repeated",
    )


def add_application(parser: argparse.ArgumentParser) -> None:
    """Declare what says which application is meant, and its settings."""
    parser.add_argument(
        "app",
        metavar="APP.PY[:NAME]",
        help="the file, and the topology's name in it (default: `topology`, else the only one there is)",
    )
    parser.add_argument("--app-id", metavar="ID", help="the application's id (default: the file's name without .py)")
    parser.add_argument("--at-least-once", action="store_true", help="a crash may repeat results; lower latency")
    parser.add_argument(
        "--commit-interval", type=duration, metavar="TIME", help="such as 100ms (the default) or 1s; 30s at least once"
    )


# ---- settings ----------------------------------------------------------------------------------------------------


def application(args: argparse.Namespace) -> "tuple[Topology, Config]":
    """Return the topology and the settings that the command line asks for."""
    from headwater.streams.cli.app_file import load_app

    topology, stem = load_app(args.app)
    given: dict[str, Any] = {}
    if args.at_least_once:
        given["exactly_once"] = False
    if args.commit_interval is not None:
        given["commit_interval"] = args.commit_interval
    # A reset has only the first of them.
    for name in ("app_id", "instance_id", "standbys", "listen"):
        if getattr(args, name, None) is not None:
            given[name] = getattr(args, name)
    return topology, settings(args, given, stem)


# ---- running -----------------------------------------------------------------------------------------------------


def _run(args: argparse.Namespace) -> int:
    from headwater.streams.run import state_directory

    _check_engine(args)
    topology, config = application(args)
    address = broker(args)
    directory = state_directory(config, address).absolute()
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, format="%(levelname)s: %(message)s")
    began = time.monotonic()
    try:
        with _status(config.app_id, directory) as show:
            if args.on == "spark":
                last = _run_on_spark(topology, config, address, directory, args, show)
            elif args.workers in (None, 1):
                last = _run_here(topology, config, address, show)
            else:
                last = _run_fleet(topology, config, address, args.workers, args.app, show)
    except TopologyError as error:
        raise StreamsError("; ".join(error.faults)) from error
    _summarise(config.app_id, last, time.monotonic() - began, args.json)
    return 0


def _check_engine(args: argparse.Namespace) -> None:
    """Refuse options that do not fit together."""
    if args.workers is not None and args.workers < 1:
        raise StreamsError("--workers must be at least 1.")
    if args.on == "spark":
        if args.workers is not None:
            raise StreamsError("--workers is for --on local: on Spark say how many cores with --master 'local[N]'.")
        if args.commit_interval is not None:
            raise StreamsError("--commit-interval is for --on local: on Spark every batch is a commit; see --trigger.")
        names = ("standbys", "instance-id", "listen")
        if given := [f"--{name}" for name in names if getattr(args, name.replace("-", "_")) is not None]:
            raise StreamsError(f"{', '.join(given)}: only with --on local.")
    else:
        given = [f"--{name}" for name in ("master", "checkpoint", "trigger", "conf") if getattr(args, name)]
        if given:
            raise StreamsError(f"{', '.join(given)}: only with --on spark.")
        if args.instance_id is not None and (args.workers or 1) > 1:
            raise StreamsError("--instance-id names one worker: start each by itself, without --workers.")


class _Stop:
    """Stops an application, and wakes whoever waits for that."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self.asked = threading.Event()

    def request_stop(self) -> None:
        self._stop()
        self.asked.set()


def _run_here(topology: "Topology", config: "Config", address: str, show: Callable[[], None]) -> list[dict[str, Any]]:
    from headwater.streams.run import open_app, stopping_on_signals

    app = open_app(topology, config, address)
    stop = _Stop(app.request_stop)
    with stopping_on_signals(stop):
        app.start()
        while app.state not in ("stopped", "failed"):
            show()
            stop.asked.wait(_REFRESH)
            if stop.asked.is_set():
                break
        app.join()
    return [app.metrics()]


def _run_on_spark(
    topology: "Topology",
    config: "Config",
    address: str,
    directory: Path,
    args: argparse.Namespace,
    show: Callable[[], None],
) -> list[dict[str, Any]]:
    from headwater.streams.run import open_spark_app, stopping_on_signals

    log = None if args.verbose else directory / "spark.log"
    if not args.verbose:
        # It prints the traceback of what ends a query, which is told anyway, in a line.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    app = open_spark_app(
        topology,
        config,
        address,
        master=args.master,
        checkpoint=args.checkpoint,
        trigger=args.trigger,
        conf=dict(args.conf),
        log=log,
    )
    directory.mkdir(parents=True, exist_ok=True)
    if args.checkpoint is None:
        print(f"{config.app_id}: the checkpoint is in {directory / 'spark'}", file=sys.stderr)
    # Before the handlers are set: Spark sets its own when a session starts.
    app.start()
    stop = _Stop(app.request_stop)
    with stopping_on_signals(stop):
        while app.state == "running" and not stop.asked.is_set():
            show()
            stop.asked.wait(_REFRESH)
        app.join()
    return [app.metrics()]


def _run_fleet(
    topology: "Topology", config: "Config", address: str, workers: int, path: str, show: Callable[[], None]
) -> list[dict[str, Any]]:
    from headwater.streams.fleet import Fleet
    from headwater.streams.run import stopping_on_signals

    _travel(path)
    fleet = Fleet(topology, config, address, workers)
    stop = _Stop(fleet.request_stop)
    with stopping_on_signals(stop):
        try:
            fleet.start()
            while not stop.asked.is_set():
                fleet.watch(_REFRESH)
                show()
        except BaseException:
            fleet.stop()
            raise
        fleet.stop()
    return fleet.last


def _travel(path: str) -> None:
    """Have functions of the file travel as they are where other processes could not import it by its name."""
    import cloudpickle  # type: ignore[import-untyped]  # it comes without types

    module = sys.modules.get(f"headwater_app_{Path(path.partition(':')[0]).stem}")
    if module is not None:
        cloudpickle.register_pickle_by_value(module)


# ---- what is shown -----------------------------------------------------------------------------------------------


def _status(app_id: str, directory: Path) -> AbstractContextManager[Callable[[], None]]:
    """On a terminal a line that is kept up to date with how the application is doing; elsewhere nothing."""
    if not sys.stderr.isatty():
        return nullcontext(lambda: None)
    return _StatusLine(app_id, directory)


class _StatusLine:
    def __init__(self, app_id: str, directory: Path) -> None:
        from rich.console import Console
        from rich.status import Status

        self._app_id = app_id
        self._directory = directory
        self._status = Status(f"{app_id}: starting", console=Console(stderr=True), spinner="dots")

    def __enter__(self) -> Callable[[], None]:
        self._status.start()
        return self.show

    def __exit__(self, *exc: object) -> None:
        self._status.stop()

    def show(self) -> None:
        from rich.markup import escape

        from headwater.streams.queries import Metrics
        from headwater.streams.sockets import SOCKETS, ask_all

        try:
            workers = list(ask_all(self._directory / SOCKETS, Metrics()).values())
        except StreamsError:
            # Busy, or coming and going; the next look is soon.
            return
        self._status.update(f"[bold]{escape(self._app_id)}[/bold] {escape(line(workers))} [dim]· Ctrl-C stops it[/dim]")


def line(workers: list[dict[str, Any]]) -> str:
    """Say in a line how the workers of an application are doing.

    >>> line([{"state": "running", "tasks": {"0_0": {}}, "records-total": 1200, "records-rate": 99.6, "lag": 3}])
    'running · 1 task · 1,200 records · 100/s · lag 3'
    >>> restoring = {"restoring": {"0_1": 3000}, "restored-records-rate": 500.0}
    >>> line([{"state": "running", "tasks": {}, "records-total": 0, "records-rate": 0, "lag": 0, **restoring}])
    'running · 0 tasks · 0 records · 0/s · lag 0 · restoring 1 task: 3,000 records left, 500/s, 6 s to go'
    >>> line([{"state": "running", "engine": "spark", "batches-total": 7, "records-total": 900, "commit-ms": 412.3}])
    'running on spark · 7 batches of 412 ms · 900 records · 0/s · 0 state rows · lag 0'
    """
    if any(worker.get("engine") == "spark" for worker in workers):
        return _spark_line(workers)
    states = sorted({worker["state"] for worker in workers}) or ["starting"]
    tasks = sum(len(worker["tasks"]) for worker in workers)
    parts = [", ".join(states)]
    if len(workers) > 1:
        parts.append(f"{len(workers)} workers")
    parts.append(f"{tasks} task{'' if tasks == 1 else 's'}")
    parts.append(f"{_sum(workers, 'records-total'):,.0f} records")
    parts.append(f"{_sum(workers, 'records-rate'):,.0f}/s")
    parts.append(f"lag {_sum(workers, 'lag'):,.0f}")
    return " · ".join(parts + _restoring(workers) + _lost(workers))


def _restoring(workers: list[dict[str, Any]]) -> list[str]:
    """How much state is yet to be fetched from changelogs, at which rate and for how long, if any."""
    left = [count for worker in workers for count in worker.get("restoring", {}).values()]
    if not left:
        return []
    rate = _sum(workers, "restored-records-rate")
    tasks = "1 task" if len(left) == 1 else f"{len(left)} tasks"
    to_go = f", {sum(left) / rate:,.0f} s to go" if rate else ""
    return [f"restoring {tasks}: {sum(left):,} records left, {rate:,.0f}/s{to_go}"]


def _spark_line(workers: list[dict[str, Any]]) -> str:
    (query, *_) = workers
    batches = query.get("batches-total", 0)
    parts = [
        f"{query['state']} on spark",
        f"{batches:,} batch{'' if batches == 1 else 'es'} of {query.get('commit-ms') or 0:,.0f} ms",
        f"{_sum(workers, 'records-total'):,.0f} records",
        f"{_sum(workers, 'records-rate'):,.0f}/s",
        f"{_sum(workers, 'state-rows'):,.0f} state rows",
        f"lag {_sum(workers, 'lag'):,.0f}",
    ]
    return " · ".join(parts + _lost(workers))


def _lost(workers: list[dict[str, Any]]) -> list[str]:
    counts = {name: _sum(workers, f"{name}-records-total") for name in ("late", "dropped")}
    return [f"{number:,.0f} {name}" for name, number in counts.items() if number]


def _sum(workers: list[dict[str, Any]], name: str) -> float:
    return sum(worker.get(name) or 0 for worker in workers)


def _summarise(app_id: str, last: list[dict[str, Any]], seconds: float, as_json: bool) -> None:
    totals = {
        name: int(_sum(last, f"{name}-total"))
        for name in ("records", "late-records", "dropped-records", "commits", "restarts")
    }
    if as_json:
        print_json({"app-id": app_id, "seconds": round(seconds, 3), **totals})
        return
    more = "".join(
        f", {totals[name]:,} {name.removesuffix('-records')}"
        for name in ("late-records", "dropped-records", "restarts")
        if totals[name]
    )
    done = f"{totals['records']:,} records, {totals['commits']:,} commits{more}"
    print(f"{app_id} has stopped after {seconds:,.1f} s: {done}", file=sys.stderr)
