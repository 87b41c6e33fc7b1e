"""A look from outside at what a task is doing: a thread that ends slices which take too long, and that misses a step
which never comes back. It owns the clock beside the work; what is done about a step that hangs is the application's.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.errors import StreamsError
from headwater.streams.task import Task

__all__ = ["TaskHung", "Watch"]

# How often it looks, and after how long a task is asked to end its slice with the record it is at.
LOOK_SECONDS, SLICE_SECONDS = 0.05, 0.1


class TaskHung(StreamsError):
    """A step has not come back for longer than Config(task_timeout=…) allows."""


class Watch:
    """Who is at work, and since when. Once started, it calls `hung` when a task has not come back for so many seconds;
    None waits for ever."""

    def __init__(self, timeout: float | None = None, hung: Callable[[TaskHung], object] = lambda fault: None) -> None:
        self._timeout = timeout
        self._hung = hung
        self.fault: TaskHung | None = None
        self._at: tuple[Task, float, int] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="headwater-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()

    @contextmanager
    def on(self, task: Task) -> Iterator[None]:
        """While in it, this thread runs a task's steps; TaskHung if it comes back from them too late."""
        self._at = task, time.monotonic(), threading.get_ident()
        try:
            yield
        finally:
            self._at = None
        if self.fault is not None:
            raise self.fault

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            at = self._at
            if at is None:
                continue
            task, since, thread = at
            lasted = time.monotonic() - since
            if lasted > SLICE_SECONDS:
                task.interrupt()
            if self._timeout is not None and lasted > self._timeout:
                frame = sys._current_frames().get(thread)
                if self._at is at:
                    self.fault = TaskHung(
                        f"{task.whereabouts(frame)}: it has not come back for {self._timeout:g} s. See why it hangs, "
                        "or allow more (task_timeout=). When this process has ended, another can go on from the last "
                        "commit."
                    )
                    self._hung(self.fault)
                    return
