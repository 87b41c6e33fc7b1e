"""`headwater top`: the figures of running applications, drawn and as JSON."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from rich.console import Console

from headwater.streams.cli.top import view
from tests.cli.conftest import Command
from tests.cli.services import fill, records, running, write
from tests.streams.apps import until


def test_a_look_at_a_running_application(folder: Path, headwater: Command) -> None:
    write(folder)
    fill(folder, partitions=2)
    with running(folder, "--workers", "2"):
        # Now, and not before: a task that moves to another worker counts from 0 again.
        fill(folder, "tea", "milk", "tea")
        until(lambda: records(folder) == 3)
        found = headwater("top", "--once", "--steps")
        assert found.code == 0, found.err
        for text in ("words", "running", "2 workers", "2 of 2 tasks", "3 records", "lag 0"):
            assert text in found.text
        assert [line.split()[0] for line in found.lines if line.strip().startswith("0_")] == ["0_0", "0_1"]
        assert any(line.split()[:3] == ["counts", "2", "2"] for line in found.lines)
        assert any(line.split() == ["KSTREAM-SOURCE-0000000000", "3", "0", "0"] for line in found.lines)
        workers = headwater("top", "words.py", "--json").json["words"]
        assert sum(worker["records-total"] for worker in workers) == 3
        assert sorted(task for worker in workers for task in worker["tasks"]) == ["0_0", "0_1"]
        assert _watched(folder, b"2 of 2 tasks")


def _watched(folder: Path, wanted: bytes) -> bool:
    """Whether the live view shows something before it is interrupted, and then ends well."""
    ours, theirs = pty.openpty()
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    command = [sys.executable, "-c", main, "top", "--interval", "0.1"]
    process = subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = b""
    began = time.monotonic()
    while shown.count(wanted) < 2 and time.monotonic() - began < 60:
        shown += os.read(ours, 10_000)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    os.close(ours)
    return shown.count(wanted) >= 2


def test_nobody_runs(folder: Path, headwater: Command) -> None:
    found = headwater("top")
    assert (found.code, found.text) == (1, "")
    assert "No application is running on the state in" in found.err
    assert "No worker of 'words' is running" in headwater("top", "words", "--json").err


def worker(**figures: Any) -> dict[str, Any]:
    return {"state": "running", "pid": 1, "tasks": {}, "all-tasks": ["0_0"], **figures}


def drawn(apps: dict[str, list[dict[str, Any]]], history: dict[str, deque[float]]) -> str:
    console = Console(width=150, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - closed with the process
    console.print(view(apps, history, steps=True))
    return console.export_text()


def test_what_is_wrong_stands_out() -> None:
    history: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=3))
    failed = worker(state="restarting", error="the disk is full", **{"restarts-total": 2, "records-rate": 5})
    late = worker(**{"late-records-total": 7, "dropped-records-total": 8, "records-rate": 10, "lag": 1234})
    text = drawn({"shop": [failed, late]}, history)
    for part in ("restarting, running", "2 restarts", "the disk is full", "7 late", "8 dropped", "0 of 1 tasks"):
        assert part in text
    assert "lag 1,234" in text
    drawn({"shop": [worker(**{"records-rate": 30})]}, history)
    assert "0/s ▅█▁" in drawn({"shop": [worker()]}, history)
    assert "nobody runs any more" in drawn({}, history)
