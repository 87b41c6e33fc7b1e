"""What a worker counts, in Prometheus' text format. It owns the names, units and labels there; what is counted, and
when, is metrics.py's.

Every sample has the label `app`; those of a task `task` too, and of a store `store`. Durations are in seconds; the
counts of a task begin at 0 where it starts. What is counted for the worker alone is shown under its own name:
`restores-total` becomes `headwater_restores_total`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Of the worker, of a task, of a store: what metrics.py calls it, its name here, and what it says.
_WORKER = {
    "restarts-total": ("restarts_total", "How often the worker was started again after a fault."),
    "commit-ms": ("commit_seconds", "How long a commit has taken, on average over the last ten seconds."),
}
_TASK = {
    "records-total": ("records_total", "Records processed."),
    "lag": ("lag_records", "Records in the inputs that are yet to be processed."),
    "queued": ("queued_records", "Of these, records that have been read."),
    "late-records-total": ("late_records_total", "Records that came after their window had closed."),
    "dropped-records-total": ("dropped_records_total", "Records dropped, the late ones among them."),
    "commits-total": ("commits_total", "Commits."),
    "committed-at": ("last_commit_timestamp_seconds", "When it was committed last."),
    "latency-ms": ("latency_seconds", "From a record's timestamp to its commit, on average over the last ten seconds."),
    "latency-max-ms": ("latency_max_seconds", "The same at its highest."),
}
_STORE = {
    "rows-estimate": ("store_rows", "About how many rows the store has."),
    "disk-bytes": ("store_disk_bytes", "What its rows take on disk."),
    "dirty-bytes": ("store_dirty_bytes", "What its rows take that are not committed yet."),
    "rows-written-total": ("store_rows_written_total", "Rows written by commits."),
    "database-reads-total": ("store_database_reads_total", "Rows that were asked of the database one by one."),
}
# By task, but not of those that run here.
_OTHERS = {
    "standbys": ("standby_lag_records", "Records by which the copy of a task that runs elsewhere is behind."),
    "restoring": ("restoring_records", "Records that a task which is about to start here has yet to restore."),
}
# Shown by task, or as labels.
_ELSEWHERE = {*_WORKER, *_TASK, *_OTHERS, "records-rate", "app-id", "state", "error", "pid", "all-tasks", "tasks"}

Sample = tuple[str, str, dict[str, str], float]


def exposition(app_id: str, counted: Mapping[str, Any]) -> str:
    """The metrics of a worker, given what it has counted.

    >>> counted = {"state": "running", "restarts-total": 1, "restores-total": 2, "standbys": {"0_1": 7}, "tasks": {}}
    >>> print(exposition("shop", counted))
    # HELP headwater_state What the application is doing; 1 for the state it is in.
    # TYPE headwater_state gauge
    headwater_state{app="shop",state="running"} 1
    # HELP headwater_tasks Tasks that run here.
    # TYPE headwater_tasks gauge
    headwater_tasks{app="shop"} 0
    # HELP headwater_restarts_total How often the worker was started again after a fault.
    # TYPE headwater_restarts_total counter
    headwater_restarts_total{app="shop"} 1
    # HELP headwater_restores_total restores-total
    # TYPE headwater_restores_total counter
    headwater_restores_total{app="shop"} 2
    # HELP headwater_standby_lag_records Records by which the copy of a task that runs elsewhere is behind.
    # TYPE headwater_standby_lag_records gauge
    headwater_standby_lag_records{app="shop",task="0_1"} 7
    <BLANKLINE>
    """
    lines: dict[str, list[str]] = {}
    for name, says, labels, number in _samples(counted):
        kind = "counter" if name.endswith("_total") else "gauge"
        family = lines.setdefault(name, [f"# HELP headwater_{name} {says}", f"# TYPE headwater_{name} {kind}"])
        family.append(f"headwater_{name}{_labelled({'app': app_id, **labels})} {_number(number)}")
    return "".join(f"{line}\n" for family in lines.values() for line in family)


def _samples(counted: Mapping[str, Any]) -> Iterator[Sample]:
    yield "state", "What the application is doing; 1 for the state it is in.", {"state": counted["state"]}, 1
    tasks = counted["tasks"]
    yield "tasks", "Tasks that run here.", {}, len(tasks)
    yield from _of(counted, _WORKER, {})
    for name, number in counted.items():
        if name not in _ELSEWHERE and isinstance(number, int | float):
            yield name.replace("-", "_"), name, {}, number
    for task_id, task in tasks.items():
        yield from _of(task, _TASK, {"task": task_id})
        for store, figures in task["stores"].items():
            yield from _of(figures, _STORE, {"task": task_id, "store": store})
    for figure, named in _OTHERS.items():
        for task_id, number in sorted(counted.get(figure, {}).items()):
            yield (*named, {"task": task_id}, number)


def _of(figures: Mapping[str, Any], names: Mapping[str, tuple[str, str]], labels: dict[str, str]) -> Iterator[Sample]:
    for figure, (name, says) in names.items():
        number = figures.get(figure)
        if number is not None:
            yield name, says, labels, number / 1000 if name.endswith("_seconds") else number


def _labelled(labels: Mapping[str, str]) -> str:
    r"""Labels as the format has them.

    >>> print(_labelled({"store": 'a"b\\c\nd'}))
    {store="a\"b\\c\nd"}
    """
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "{" + ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items()) + "}"


def _number(number: float) -> str:
    return str(number) if isinstance(number, int) else repr(float(number))
