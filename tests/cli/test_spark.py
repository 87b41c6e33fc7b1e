"""`--on spark`: a topology as a Spark query in a process of its own, how it is watched and how it ends."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headwater.streams.cli.top import view
from tests.cli.conftest import Command
from tests.cli.services import APP, fill, service, stop, write
from tests.streams.apps import until

SMALL = (
    *("--on", "spark", "--master", "local[1]", "--conf", "spark.ui.enabled=false"),
    # On a busy machine a Python worker takes longer than 15 seconds to start.
    *("--conf", "spark.python.authenticate.socketTimeout=120s"),
)
PLACE = Path(".headwater") / "apps" / "words"


def counted(headwater: Command) -> dict[str, int]:
    """The last count of each word."""
    lines = [line.split(b"\t") for line in headwater("consume", "counted", "--print-key").out.splitlines()]
    return {key.decode(): int.from_bytes(count, "big") for key, count in lines}


def seen(headwater: Command) -> int:
    """How many records the running query says it has processed."""
    found = headwater("top", "words", "--json")
    return int(found.json["words"][0].get("records-total", -1)) if found.code == 0 else -1


def test_what_is_there_is_processed_and_a_service_goes_on_from_there(folder: Path, headwater: Command) -> None:
    write(folder)
    fill(folder, "tea", "milk", "tea", partitions=2)
    with service(folder, *SMALL, "--trigger", "available-now", "--json") as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    told = json.loads(out)
    assert (told["app-id"], told["records"], told["late-records"]) == ("words", 3, 0)
    assert told["commits"] >= 1
    assert f"the checkpoint is in {folder / PLACE / 'spark'}" in err
    assert counted(headwater) == {"tea": 2, "milk": 1}
    # Only what Headwater itself has to say: the rest is in a file.
    assert err.count("\n") == 1
    assert (folder / PLACE / "spark.log").stat().st_size > 0

    fill(folder, "tea")
    with service(folder, *SMALL, "--trigger", "200ms") as process:
        until(lambda: process.poll() is not None or seen(headwater) == 1, patience=180)
        assert counted(headwater) == {"tea": 3, "milk": 1}
        # Counted when the batch has written; its rows can be read when Spark has noted that it is done.
        asked = ("query", "words", "counts", "get", "tea", "--json")
        until(lambda: process.poll() is not None or b'"value":3' in headwater(*asked).out, patience=180)
        found = headwater(*asked)
        assert found.code == 0, found.err
        assert found.json["rows"][0]["value"] == 3
        assert [row["key"] for row in headwater("query", "words", "windows", "--json").json["rows"]] == ["milk", "tea"]
        missing = headwater("query", "words", "counts", "get", "water")
        assert (missing.code, missing.err) == (1, "headwater: counts has no row for water.\n")
        assert "there is no store 'no'" in headwater("query", "words", "no").err
        refused = headwater("reset", "words.py", "--on", "spark", "--yes")
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert "'words' is running: stop it first, then reset it." in refused.err
        code, _, err = stop(process)
    assert code == 0, err
    assert re.search(r"words has stopped after [\d.]+ s: 1 records, \d+ commits\n$", err)
    assert headwater("top", "words").code == 1
    told = headwater("reset", "words.py", "--on", "spark", "--dry-run", "--json").json
    assert (told["state"], told["topics"], told["done"]) == ([str(folder / PLACE / "spark")], [], False)
    assert "words will begin anew" in headwater("reset", "words.py", "--on", "spark", "--yes").text
    assert not list((folder / PLACE).glob("spark*/"))
    assert "words has neither state" in headwater("reset", "words.py", "--on", "spark", "--yes").text


def test_a_status_line_on_a_terminal_and_top_beside_it(folder: Path, headwater: Command) -> None:
    write(folder)
    fill(folder, "tea", "tea")
    ours, theirs = pty.openpty()
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", main, "run", "words.py", *SMALL],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
        # So that Ctrl-C on the terminal is for it, and for all that it has started and not set apart.
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    shown = b""
    began = time.monotonic()
    while not re.search(rb"running on spark.*? 2 records", shown) and time.monotonic() - began < 180:
        shown += os.read(ours, 10_000)
    top = headwater("top", "--once", "--steps").text
    for text in ("words", "running", "on spark", "batches", "2 records", "state rows", "lag 0"):
        assert text in top
    os.write(ours, b"\x03")
    try:
        while more := os.read(ours, 10_000):
            shown += more
    except OSError:
        pass  # the terminal's other end is closed
    os.close(ours)
    assert process.wait(60) == 0, shown.decode()
    plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    assert re.search(r"words running on spark · \d+ batch(es)? of [\d,]+ ms · 2 records · \d+/s · \d+ state row", plain)
    assert "words has stopped after" in plain
    assert "Traceback" not in plain


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_step_that_raises_ends_it_and_says_where(folder: Path) -> None:
    write(folder, text=APP.replace('stream("words")', 'stream("words").filter(lambda key, value: value["no"])'))
    fill(folder, "tea")
    with service(folder, *SMALL, "--checkpoint", str(folder / "checkpoint")) as process:
        _, err = process.communicate(timeout=180)
    assert process.returncode == 1
    assert "words-0@0" in err
    assert "TypeError" in err
    assert err.count("\n") == 1
    assert (folder / "checkpoint").is_dir()


# ---- what does not fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--master", "local[2]"], "--master: only with --on spark."),
        (["--checkpoint", "x", "--trigger", "5s", "--conf", "a=b"], "--checkpoint, --trigger, --conf: only with --on"),
        (["--on", "spark", "--workers", "2"], "--workers is for --on local: on Spark say how many cores with --master"),
        (["--on", "spark", "--commit-interval", "1s"], "--commit-interval is for --on local: on Spark every batch is"),
        (["--on", "spark", "--master", "spark://host:7077"], "A checkpoint is needed on a cluster: name a directory"),
        (["--on", "spark", "--conf", "spark.master=yarn"], "A checkpoint is needed on a cluster: name a directory"),
        (["--on", "spark", "--master", "nonsense", "--checkpoint", "x"], "There is no Spark master 'nonsense'"),
    ],
)
def test_options_that_do_not_fit(folder: Path, headwater: Command, options: list[str], told: str) -> None:
    fill(folder)
    found = headwater("run", write(folder), *options)
    assert (found.code, found.err.count("\n")) == (1, 1)
    assert told in found.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--on", "flink"], "invalid choice: 'flink'"),
        (["--on", "spark", "--trigger", "soon"], "'soon' is no duration: write it like 500ms"),
        (["--on", "spark", "--conf", "spark.x"], "'spark.x' is no setting: write it like spark.executor.memory=4g"),
    ],
)
def test_options_that_cannot_be_read(folder: Path, headwater: Command, options: list[str], told: str) -> None:
    found = headwater("run", write(folder), *options)
    assert found.code == 2
    assert told in found.err


def test_options_of_describe_that_do_not_fit(folder: Path, headwater: Command) -> None:
    path = write(folder)
    assert "--plan: only with --on spark." in headwater("describe", path, "--plan").err
    assert "leave out --on" in headwater("describe", path, "--on", "spark", "--dot").err


def test_how_it_would_run_is_described(folder: Path) -> None:
    write(folder)
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"

    def described(*options: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", main, "describe", "words.py", "--on", "spark", *options]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180)

    refused = described()
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "There is no log in" in refused.stderr
    fill(folder, partitions=3)
    done = described("--plan")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Stage 0: 3 shards, in the task, inside transformWithStateInPandas\n  reads: words\n")
    assert "stores: counts, windows" in done.stdout
    assert "TransformWithState" in done.stdout.partition("== Parsed Logical Plan ==")[2]


def test_spark_is_not_installed(folder: Path) -> None:
    write(folder)
    fill(folder)
    hidden = "import sys; sys.modules['pyspark'] = None; from headwater.streams.cli import main; sys.exit(main())"
    for command in ("run", "describe"):
        done = subprocess.run(
            [sys.executable, "-c", hidden, command, "words.py", "--on", "spark"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "run pip install 'headwater[spark]'." in done.stderr


def test_a_reset_deletes_nothing_but_the_checkpoint_of_its_query(folder: Path, headwater: Command) -> None:
    path = write(folder)
    (folder / "mine").mkdir()
    (folder / "mine" / "letter").touch()
    (folder / "other").mkdir()
    (folder / "other" / "headwater.json").write_text('{"app_id": "shop"}')
    on_spark = ("reset", path, "--on", "spark", "--yes")
    for place, told in (
        ("mine", "does not look like a checkpoint of Headwater's"),
        ("other", "is the checkpoint of the application 'shop', not of 'words'"),
        (f"file://{folder}/other", "is the checkpoint of the application 'shop', not of 'words'"),
        ("hdfs://host/checkpoints/words", "is not on this machine: delete it with the tools of its storage"),
    ):
        found = headwater(*on_spark, "--checkpoint", place)
        assert (found.code, found.err.count("\n")) == (1, 1)
        assert told in found.err
    assert "--to-… and --topic are for --on local" in headwater(*on_spark, "--to-latest").err
    assert "--checkpoint: only with --on spark." in headwater("reset", path, "--checkpoint", "other").err
    assert {file.name for file in folder.rglob("*") if file.is_file()} >= {"letter", "headwater.json"}
    found = headwater(*on_spark, "--app-id", "shop", "--checkpoint", "other")
    assert "shop will begin anew" in found.text
    assert not (folder / "other").exists()


# ---- what is shown -----------------------------------------------------------------------------------------------


def test_a_query_among_workers() -> None:
    query: dict[str, Any] = {
        "state": "running", "pid": 1, "engine": "spark", "tasks": {}, "commit-ms": 1200.0, "batches-total": 12,
        "records-total": 3400, "records-rate": 55.0, "lag": 7, "state-rows": 99, "state-bytes": 1 << 20,
        "late-records-total": 2, "dropped-records-total": 0,
        "steps": {"KSTREAM-AGGREGATE-0000000001": {"late-records-total": 2, "dropped-records-total": 0}},
    }
    console = Console(width=150, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - closed with the process
    history: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=3))
    console.print(view({"shop": [query]}, history, steps=True))
    text = console.export_text()
    for part in ("on spark", "12 batches", "99 state rows, 1 MiB in memory", "3,400 records", "batch 1.2 s", "2 late"):
        assert part in text
    assert [line.split() for line in text.splitlines() if "AGGREGATE" in line] == [
        ["KSTREAM-AGGREGATE-0000000001", "-", "2", "0"]
    ]
