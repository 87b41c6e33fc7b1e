"""`headwater run`: from the file to the summary, and what is told when it cannot run."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from headwater import Config, StreamsError
from headwater.state.rocks import RocksBackend
from headwater.streams.cli.run import line
from tests.cli.conftest import Command, settings
from tests.cli.services import APP, fill, records, running, service, stop, write
from tests.streams.apps import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_until_it_is_told_to_stop(folder: Path, headwater: Command, number: int) -> None:
    write(folder)
    fill(folder, "tea", "milk", "tea")
    with running(folder, "--json", expected=3) as process:
        code, out, err = stop(process, number)
    assert code == 0, err
    told = json.loads(out)
    assert (told["app-id"], told["records"], told["restarts"]) == ("words", 3, 0)
    assert told["commits"] >= 1
    assert headwater("consume", "counted", "--max-messages", "9").text.count("\n") == 3


def test_several_workers(folder: Path) -> None:
    write(folder)
    words = [f"w{n}" for n in range(30)]
    fill(folder, *words, partitions=3)
    with running(folder, "--workers", "2", expected=30) as process:
        code, _, err = stop(process)
    assert code == 0, err
    assert re.fullmatch(r"words has stopped after [\d.]+ s: 30 records, \d+ commits\n", err)


def test_workers_of_a_file_that_they_cannot_import(folder: Path) -> None:
    # Its name is none that an import statement could have: the functions must travel as they are.
    text = APP.replace('builder.stream("words")', 'builder.stream("words").filter(lambda key, value: twice(key))')
    write(folder, "my-words.py", "    def twice(key):\n        return key * 2\n" + text)
    fill(folder, "tea", "milk", partitions=2)
    with service(folder, "--workers", "2", app="my-words.py") as process:
        until(lambda: process.poll() is not None or records(folder, "my-words") == 2)
        code, _, err = stop(process)
    assert code == 0, err


def test_killed_workers_are_started_again_and_all_end_with_their_parent(folder: Path) -> None:
    write(folder)
    fill(folder, "tea", partitions=2)
    with running(folder, "--workers", "2", expected=1) as process:
        children = _children(process.pid)
        assert len(children) == 2
        os.kill(children[0], signal.SIGKILL)
        until(lambda: len(_children(process.pid)) == 2 and children[0] not in _children(process.pid))
        left = _children(process.pid)
        process.kill()
        until(lambda: not any(_alive(pid) for pid in left))


def _children(pid: int) -> list[int]:
    """The worker processes of a process, without the one that tracks its resources."""
    found = subprocess.run(["pgrep", "-P", str(pid), "-f", "spawn_main"], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_status_line_on_a_terminal(folder: Path) -> None:
    write(folder)
    fill(folder, "tea", "tea")
    ours, theirs = pty.openpty()
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-c", main, "run", "words.py"], cwd=folder, stderr=theirs, stdout=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    began = time.monotonic()
    while b"2 records" not in shown and time.monotonic() - began < 60:
        shown += os.read(ours, 10_000)
    process.send_signal(signal.SIGINT)
    try:
        while more := os.read(ours, 10_000):
            shown += more
    except OSError:
        pass  # the terminal's other end is closed
    os.close(ours)
    assert process.wait(60) == 0
    plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    assert "words running · 1 task · 2 records" in plain
    assert "words has stopped after" in plain


# ---- what can go wrong -------------------------------------------------------------------------------------------


def test_a_missing_topic(folder: Path, headwater: Command) -> None:
    found = headwater("run", write(folder))
    assert (found.code, found.out) == (1, b"")
    assert f"There is no log in {folder}" in found.err
    assert not (folder / ".headwater").exists()
    headwater("topics", "create", "other")
    found = headwater("run", write(folder))
    assert found.code == 1
    assert found.err.count("\n") == 1
    assert "topic 'words' of source" in found.err
    assert "(headwater topics create words --partitions 4)" in found.err


def test_topics_that_are_not_partitioned_alike(folder: Path, headwater: Command) -> None:
    text = """
        from headwater import StreamsBuilder
        builder = StreamsBuilder()
        builder.stream("left").join(builder.table("right"), lambda a, b: a).to("out")
        topology = builder.build()
    """
    headwater("topics", "create", "left", "--partitions", "2")
    headwater("topics", "create", "right", "--partitions", "3")
    found = headwater("run", write(folder, text=text))
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert "not co-partitioned: [left=2, right=3]: give them the same number of partitions" in found.err


def test_another_topology_under_the_same_id(folder: Path, headwater: Command) -> None:
    write(folder)
    fill(folder, "tea")
    other = write(folder, "other.py", APP.replace('store="windows"', 'store="others"'))
    with running(folder, expected=1):
        found = headwater("run", other, "--app-id", "words")
    assert found.code == 1
    assert "'words' is running with another topology: stop it first, or give this one another id" in found.err


def test_state_of_another_layout(folder: Path, headwater: Command) -> None:
    path = write(folder)
    fill(folder, "tea")
    backend = RocksBackend(folder / ".headwater" / "apps" / "words" / "tasks" / "0_0", ["old"])
    assert backend._database is not None
    backend._database[b"layout"] = b'{"version": 0, "stores": ["old"]}'
    backend.close()
    (folder / ".headwater" / "apps" / "words" / "topology.txt").write_text("Topologies:\n ")
    found = headwater("run", path)
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert "has layout version 0, not 1. Start with the version and the topology that wrote it, or reset" in found.err


def test_a_directory_that_cannot_be_written_to(folder: Path, headwater: Command) -> None:
    path = write(folder)
    (folder / "file").write_text("no directory")
    found = headwater("run", path, "--broker", f"log://{folder / 'file'}")
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert str(folder / "file") in found.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1 / 0\n", "words.py:1: ZeroDivisionError: division by zero"),
        ("x = 1\n", "words.py defines no topology"),
        ("def f(:\n", "words.py:1: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_taken(folder: Path, headwater: Command, text: str, told: str) -> None:
    found = headwater("run", write(folder, text=text))
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert told in found.err


def test_a_step_that_raises_ends_it_and_says_where(folder: Path) -> None:
    write(folder, text=APP.replace('stream("words")', 'stream("words").filter(lambda key, value: value["no"])'))
    fill(folder, "tea")
    for options in ((), ("--workers", "2")):
        with service(folder, *options) as process:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 1
            assert "words-0@0: TypeError" in err
            assert "words.py" in err or "words:" in err
            assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "nonsense=1"], "there is no setting 'nonsense', only app_id, cache_bytes"),
        (["--set", "cache_bytes"], "write --set cache_bytes=VALUE"),
        (["--set", "cache_bytes=many"], "'many' is no size"),
        (["--set", "max_task_idle=7"], "'7' is no duration"),
        (["--set", "num.stream.threads=7"], "no counterpart of num.stream.threads"),
        (["--set", "on_processing_error=dead-letter"], "needs a topic: give dead_letters="),
        (["--app-id", "a/b"], "app_id must be letters"),
        (["--workers", "0"], "--workers must be at least 1"),
    ],
)
def test_settings_that_are_wrong(folder: Path, headwater: Command, options: list[str], told: str) -> None:
    found = headwater("run", write(folder), *options)
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert told in found.err


def test_settings() -> None:
    given = settings(
        ["cache_bytes=1MiB", "max_task_idle=none", "exactly_once=False", "late=late-ones", "commit.interval.ms=200"],
        {"app_id": "a"},
    )
    assert given == Config(
        "a",
        cache_bytes=1 << 20,
        max_task_idle=None,
        exactly_once=False,
        late="late-ones",
        commit_interval=timedelta(milliseconds=200),
    )
    assert settings(["optimize=self-join"], {}).optimize == {"self-join"}
    with pytest.raises(StreamsError, match="optimize has no 'x'"):
        settings(["optimize=x"], {})


def test_the_status_of_workers_that_come_and_go() -> None:
    assert line([]) == "starting · 0 tasks · 0 records · 0/s · lag 0"
    worker = {"state": "running", "tasks": {"0_0": {}}, "records-total": 5, "late-records-total": 2}
    text = line([worker, {"state": "restarting", "tasks": {}}])
    assert text == "restarting, running · 2 workers · 1 task · 5 records · 0/s · lag 0 · 2 late"
