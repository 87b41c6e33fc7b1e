"""What a worker has counted, as plain data: for `headwater top`, for queries from outside and for tests. It owns the
names and shapes; the counting is done where things happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.worker import Worker

__all__ = ["collect"]

DROPPED, LATE = "dropped-records-total", "late-records-total"


def collect(worker: Worker, app: App) -> dict[str, Any]:
    """The application's state and, per task, its records, lag, commits, latency, and the counts of steps and stores."""
    tasks: dict[str, dict[str, Any]] = {}
    now = worker.clock.now()
    for task_id, running in worker.tasks.items():
        task = running.task
        steps = task.metrics()
        tasks[task_id] = {
            "records-total": running.processed,
            "lag": worker.lag(running),
            "commits-total": running.commits,
            "committed-at": running.committed_at,
            "stream-time": task.stream_time,
            # How far the results lag behind the events they tell of.
            "latency-ms": now - task.stream_time if task.stream_time >= 0 else None,
            "steps": steps,
            "stores": {name: {"dirty-bytes": store.dirty_bytes} for name, store in task.stores.items()},
            "positions": {f"{topic}-{partition}": at for (topic, partition), at in running.positions.items()},
        }
    every: list[dict[str, int]] = [step for task in tasks.values() for step in task["steps"].values()]
    if worker.global_task is not None:
        every += worker.global_task.metrics().values()
    return {
        "app-id": worker.config.app_id,
        "state": app.state,
        "restarts-total": app.restarts,
        "records-total": sum(task["records-total"] for task in tasks.values()),
        DROPPED: sum(step[DROPPED] for step in every),
        LATE: sum(step[LATE] for step in every),
        "tasks": tasks,
    }
