"""A standalone Spark cluster on this machine, a master and a worker from the pyspark package in processes of their own,
and a Python for their executors that has everything but Headwater."""

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

HOME = Path(pyspark.__file__).parent
START_SECONDS = 180


class Cluster(NamedTuple):
    master: str
    folder: Path
    environment: dict[str, str]


def python_without(folder: Path, *absent: str) -> Path:
    """A Python in the folder with what ours has installed, but for Headwater and the modules named."""
    venv.create(folder)
    installed = Path(pyspark.__file__).parents[1]
    (own,) = folder.glob("lib/python*/site-packages")
    for entry in installed.iterdir():
        # The finder of an editable installation is left out too: its .pth file is not linked.
        name = entry.name.partition(".")[0]
        if name not in absent and "headwater" not in entry.name and entry.suffix != ".pth":
            (own / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def clean_environment() -> dict[str, str]:
    """Ours, without anything that would let other processes find this project."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ}
    # Else the scripts would look for one on the PATH.
    return {**kept, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}


@contextmanager
def cluster(folder: Path, cores: int = 2) -> Iterator[Cluster]:
    """A running cluster, whose files are in the folder."""
    with ExitStack() as stack:
        address = stack.enter_context(
            _daemon("master.Master", folder, r"Starting Spark master at (spark://\S+)", "--port", "0")
        )
        stack.enter_context(
            _daemon(
                "worker.Worker", folder, r"(Successfully registered with master)",
                *("--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / "work"), address),
            )
        )
        yield Cluster(address, folder, clean_environment())


@contextmanager
def _daemon(kind: str, folder: Path, ready: str, *options: str) -> Iterator[str]:
    log = folder / f"{kind}.log"
    command = [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*command, "--webui-port", "0", *options],
            cwd=folder, env=clean_environment(), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        ) as process,
    ):
        try:
            give_up = time.monotonic() + START_SECONDS
            while (found := re.search(ready, log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < give_up, log.read_text()
                time.sleep(0.1)
            yield found[1]
        finally:
            process.terminate()


def drive(cluster: Cluster, script: str, python: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a script as a driver, in a process of its own with our Python, in the cluster's folder."""
    environment = {**cluster.environment, "PYSPARK_PYTHON": str(python), "MASTER": cluster.master, **more}
    return subprocess.run(
        [sys.executable, script], cwd=cluster.folder, env=environment, capture_output=True, text=True, timeout=480
    )
