"""`headwater run` as a process of its own, and an application file to run."""

import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from headwater import Admin
from headwater.dsl.partitioner import partition_for
from headwater.state.log import Log, NewRecord
from headwater.streams.queries import Metrics
from headwater.streams.sockets import ask_all
from tests.streams.apps import until

APP = """
    from datetime import timedelta
    from headwater import StreamsBuilder, TimeWindows

    builder = StreamsBuilder()
    words = builder.stream("words").group_by_key()
    words.count(store="counts").to_stream().to("counted")
    words.windowed_by(TimeWindows.of(timedelta(seconds=10))).count(store="windows")
    topology = builder.build()
"""


def write(folder: Path, name: str = "words.py", text: str = APP) -> str:
    """Write an application file and return its path."""
    (folder / name).write_text(dedent(text))
    return str(folder / name)


def fill(folder: Path, *words: str, partitions: int = 1, at: int = 1000) -> None:
    """Make the topic, if need be, and append a record for each word, all of a partition's at once.

    Not with a Producer, which on a busy machine may make more batches of them, and with them more commits.
    """
    Admin(f"log://{folder / '.headwater'}").create_topic("words", partitions, exist_ok=True)
    with Log.open(folder / ".headwater") as log:
        batches: dict[int, list[NewRecord]] = defaultdict(list)
        for key in map(str.encode, words):
            batches[partition_for(key, log.topic("words").partitions)].append((key, b'"x"', at, ()))
        for number, batch in batches.items():
            with log.partition("words", number) as partition:
                partition.append(batch)


def records(folder: Path, app: str = "words", expected_workers: int = 1) -> int:
    """How many records the application's workers have processed and committed, -1 while they are not idle."""
    workers = list(ask_all(folder / ".headwater" / "apps" / app / "sockets", Metrics()).values())
    if len(workers) < expected_workers or any(worker["state"] != "running" or worker["lag"] for worker in workers):
        return -1
    tasks = [task for worker in workers for task in worker["tasks"].values()]
    if len(tasks) != len(workers[0]["all-tasks"]) or not all(worker["tasks"] for worker in workers):
        return -1
    if any(task["stores"]["counts"]["dirty-bytes"] for task in tasks):
        return -1
    return int(sum(worker["records-total"] for worker in workers))


@contextmanager
def service(folder: Path, *options: str, app: str = "words.py") -> Iterator[subprocess.Popen[str]]:
    """`headwater run` in a folder, until the end of the block at the latest."""
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", main, "run", app, *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def running(folder: Path, *options: str, expected: int = 0, app: str = "words") -> Iterator[subprocess.Popen[str]]:
    """The same, once it has processed the records that there are."""
    workers = int(options[options.index("--workers") + 1]) if "--workers" in options else 1
    with service(folder, *options) as process:
        until(lambda: process.poll() is not None or records(folder, app, workers) == expected)
        assert process.poll() is None, process.communicate()
        yield process


def stop(process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Stop it and return exit code, output and error output."""
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err
