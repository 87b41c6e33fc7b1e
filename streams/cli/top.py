"""`headwater top`: how running applications are doing, kept up to date on the terminal. It owns what is shown and how;
the figures are the workers'."""

import argparse
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.errors import StreamsError
from headwater.streams.cli.options import add_broker, add_command, add_json
from headwater.streams.cli.output import print_json, size_text
from headwater.streams.cli.running import add_running, app_id, place, reaching

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from headwater.streams.cli.options import Commands
    from headwater.streams.cli.running import Reached

__all__ = ["add", "view"]

_BARS = "▁▂▃▄▅▆▇█"
_LOOKS_BACK = 40
_STATES = {"running": "green", "paused": "yellow", "restarting": "red", "failed": "red"}


def add(commands: "Commands") -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "top",
        _top,
        "watch running applications",
        """
headwater top
headwater top revenue --interval 0.5
headwater top revenue --steps --once
headwater top revenue --json | jq '.revenue[].lag'
headwater top --broker kafka://host:9092                 # workers anywhere that --listen
headwater top --url http://host:8080
""",
        "Rates and latencies are those of the last ten seconds; latency runs from a record's timestamp to the commit.",
    )
    add_running(parser, optional=True)
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="how often to look (1)")
    parser.add_argument("--steps", action="store_true", help="show the operators too")
    parser.add_argument("--once", action="store_true", help="look once, and end")
    add_broker(parser)
    add_json(parser, "look once and print everything as JSON, for scripts")


def _top(args: argparse.Namespace) -> int:
    with reaching(args) as look:
        apps = _counted(look)
        if not apps:
            which = "No application is" if args.app is None else f"No worker of {app_id(args.app)!r} is"
            raise StreamsError(f"{which} running {place(args)}, or correct the id or --broker.")
        if args.json:
            print_json(apps)
            return 0
        from rich.console import Console

        history: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_LOOKS_BACK))
        if args.once or not sys.stdout.isatty():
            Console(width=None if sys.stdout.isatty() else 120).print(view(apps, history, steps=args.steps))
            return 0
        return _watch(args, look, apps, history)


def _watch(
    args: argparse.Namespace,
    look: Callable[[], "dict[str, Reached]"],
    apps: dict[str, list[dict[str, Any]]],
    history: dict[str, deque[float]],
) -> int:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.update(view(apps, history, steps=args.steps, hint="Ctrl-C ends it"), refresh=True)
                time.sleep(args.interval)
                apps = _counted(look)
        except KeyboardInterrupt:
            return 0


def _counted(look: Callable[[], "dict[str, Reached]"]) -> dict[str, list[dict[str, Any]]]:
    """What the workers of each application say; none of it if nobody runs."""
    found = {name: app.metrics() for name, app in look().items()}
    return {name: workers for name, workers in found.items() if workers}


# ---- what is shown -----------------------------------------------------------------------------------------------


def view(
    apps: dict[str, list[dict[str, Any]]], history: dict[str, deque[float]], *, steps: bool = False, hint: str = ""
) -> "Group":
    """All applications, each with its tasks and stores; `history` keeps the rates of earlier looks."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for app, workers in apps.items():
        history[app].append(_sum(workers, "records-rate"))
        parts.append(_head(app, workers, history[app]))
        if any(worker["tasks"] for worker in workers):
            parts.append(_tasks(workers))
        if stores := _stores(workers):
            parts.append(stores)
        if steps:
            parts.append(_steps(workers))
        parts.append(Text())
    if not apps:
        parts.append(Text("nobody runs any more", style="yellow"))
    if hint:
        parts.append(Text(hint, style="dim"))
    return Group(*parts)


def _head(app: str, workers: list[dict[str, Any]], rates: deque[float]) -> "RenderableType":
    from rich.panel import Panel
    from rich.text import Text

    text = Text()
    for number, state in enumerate(sorted({worker["state"] for worker in workers})):
        text.append(", " * bool(number) + state, style=f"bold {_STATES.get(state, 'cyan')}")
    took = _milliseconds(max((worker.get("commit-ms") or 0 for worker in workers), default=0))
    on_spark = any(worker.get("engine") == "spark" for worker in workers)
    facts = [
        *(_spark_facts(workers) if on_spark else _worker_facts(workers)),
        f"{_sum(workers, 'records-total'):,.0f} records",
        f"{_sum(workers, 'records-rate'):,.0f}/s {sparkline(rates)}",
        f"lag {_sum(workers, 'lag'):,.0f}",
        f"batch {took}" if on_spark else f"commit {took}",
    ]
    text.append("  ·  " + "  ·  ".join(facts))
    for name, style in (("late", "yellow"), ("dropped", "red")):
        if number := int(_sum(workers, f"{name}-records-total")):
            text.append(f"  ·  {number:,} {name}", style=style)
    if restarts := int(_sum(workers, "restarts-total")):
        text.append(f"  ·  {restarts} restart{'' if restarts == 1 else 's'}", style="red")
    for error in sorted({worker["error"] for worker in workers if worker.get("error")}):
        text.append(f"\n{error}", style="red")
    return Panel(text, title=f"[bold]{app}[/bold]", title_align="left", border_style="cyan")


def _worker_facts(workers: list[dict[str, Any]]) -> list[str]:
    every = {task for worker in workers for task in worker.get("all-tasks", ())}
    here = {task for worker in workers for task in worker["tasks"]}
    return [f"{len(workers)} worker{'' if len(workers) == 1 else 's'}", f"{len(here)} of {len(every)} tasks"]


def _spark_facts(workers: list[dict[str, Any]]) -> list[str]:
    size = size_text(int(_sum(workers, "state-bytes")))
    return [
        "on spark",
        f"{_sum(workers, 'batches-total'):,.0f} batches",
        f"{_sum(workers, 'state-rows'):,.0f} state rows, {size} in memory",
    ]


def sparkline(values: "deque[float]") -> str:
    """Draw numbers as bars.

    >>> sparkline(deque([0, 50, 100]))
    '▁▅█'
    """
    top = max(values, default=0)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] if top else _BARS[0] for value in values)


def _table(*columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold cyan")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _tasks(workers: list[dict[str, Any]]) -> "Table":
    table = _table("task", "worker", "records", "per second", "lag", "latency", "worst", "late", "dropped", "committed")
    now = time.time() * 1000
    rows = [(task_id, worker, task) for worker in workers for task_id, task in worker["tasks"].items()]
    for task_id, worker, task in sorted(rows, key=lambda row: [int(part) for part in row[0].split("_")]):
        table.add_row(
            task_id,
            str(worker["pid"]),
            f"{task['records-total']:,}",
            f"{task['records-rate']:,.0f}",
            _marked(task["lag"], "yellow"),
            _milliseconds(task["latency-ms"]),
            _milliseconds(task["latency-max-ms"]),
            _marked(task["late-records-total"], "yellow"),
            _marked(task["dropped-records-total"], "red"),
            f"{_milliseconds(max(0, now - task['committed-at']))} ago" if task["commits-total"] else "-",
        )
    return table


def _stores(workers: list[dict[str, Any]]) -> "Table | None":
    totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for worker in workers:
        for task in worker["tasks"].values():
            for name, store in task["stores"].items():
                for figure, number in store.items():
                    totals[name][figure] += number
    if not totals:
        return None
    table = _table("store", "rows, about", "written", "read from disk", "buffer hits", "not committed", "size, about")
    for name, store in sorted(totals.items()):
        lookups = store["buffer-hits-total"] + store["database-reads-total"]
        table.add_row(
            name,
            f"{store['rows-estimate']:,}",
            f"{store['rows-written-total']:,}",
            f"{store['database-reads-total']:,}",
            f"{100 * store['buffer-hits-total'] / lookups:.0f} %" if lookups else "-",
            size_text(store["dirty-bytes"]),
            size_text(store["disk-bytes"]),
        )
    return table


def _steps(workers: list[dict[str, Any]]) -> "Table":
    totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for worker in workers:
        # A query on Spark counts by step alone.
        for counted in worker["tasks"].values() if "steps" not in worker else [worker]:
            for name, step in counted["steps"].items():
                for figure, number in step.items():
                    totals[name][figure] += number
    table = _table("step", "records", "late", "dropped")
    for name, step in totals.items():
        table.add_row(
            name,
            f"{step['records-total']:,}" if "records-total" in step else "-",
            _marked(step["late-records-total"], "yellow"),
            _marked(step["dropped-records-total"], "red"),
        )
    return table


def _marked(number: int, style: str) -> str:
    return f"[{style}]{number:,}[/{style}]" if number else "0"


def _milliseconds(number: float | None) -> str:
    """Say a duration in about three characters.

    >>> _milliseconds(12.3), _milliseconds(4200), _milliseconds(600_000), _milliseconds(None)
    ('12 ms', '4.2 s', '10 min', '-')
    """
    if number is None:
        return "-"
    for length, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if number >= 2 * length:
            return f"{number / length:.0f} {unit}"
    return f"{number / 1000:.1f} s" if number >= 1000 else f"{number:.0f} ms"


def _sum(workers: list[dict[str, Any]], name: str) -> float:
    return sum(worker.get(name) or 0 for worker in workers)
