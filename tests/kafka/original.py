"""Kafka Streams itself, in a JVM: the sources in java/, compiled once for a test run, then started as processes."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.jars import jars

SOURCES = Path(__file__).parent / "java"


class Application(NamedTuple):
    """One of the topologies of five.py under an application id, with its topics."""

    app_id: str
    topology: str
    out: str
    inputs: tuple[str, ...]


@cache
def _class_path() -> str:
    """The compiled sources, and what they need."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise RuntimeError("Kafka Streams beside Headwater needs a JDK of Java 17 or newer: openjdk-17-jdk-headless.")
    classes = tempfile.mkdtemp(prefix="headwater-original-")
    atexit.register(shutil.rmtree, classes, ignore_errors=True)
    needed = os.pathsep.join(map(str, jars("streams")))
    sources = sorted(map(str, SOURCES.glob("*.java")))
    done = subprocess.run([compiler, "-cp", needed, "-d", classes, *sources], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"javac refuses the sources in {SOURCES}:\n{done.stderr}")
    return os.pathsep.join((classes, needed))


def _command(path: str, level: str, main: str, *words: str) -> list[str]:
    java = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.level={level}"]
    return [*java, "-cp", path, main, *words]


def _said(path: str, main: str, *words: str) -> str:
    """What a Java program prints."""
    # Its log would go to standard output too.
    done = subprocess.run(_command(path, "OFF", main, *words), capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"{main} {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def described(topology: str, out: str, *inputs: str) -> str:
    """What Kafka Streams' `describe()` says of one of the topologies."""
    return _said(_class_path(), "Original", "describe", topology, out, *inputs)


def decoded(kafka: Broker, topic: str, key: str, value: str, window_ms: int = 0) -> list[dict[str, Any]]:
    """A topic's committed records as Kafka Streams' own serdes read them; see java/Decoding.java for the kinds."""
    words = (kafka.bootstrap, topic, key, str(window_ms), value)
    return [json.loads(line) for line in _said(_class_path(), "Decoding", *words).splitlines()]


def console_consumer(kafka: Broker, topic: str, count: int, **properties: str) -> list[str]:
    """The lines that kafka-console-consumer prints of a topic's committed records; properties with `_` for `.`."""
    formatter = [
        word
        for name, value in properties.items()
        for word in ("--formatter-property", f"{name.replace('_', '.')}={value}")
    ]
    path = os.pathsep.join(map(str, jars("broker")))
    words = ["--bootstrap-server", kafka.bootstrap, "--topic", topic, "--from-beginning", *formatter]
    words += ["--isolation-level", "read_committed", "--max-messages", str(count), "--timeout-ms", "20000"]
    return _said(path, "org.apache.kafka.tools.consumer.ConsoleConsumer", *words).splitlines()


class Original:
    """Applications of Kafka Streams in one process, with their state below a directory."""

    def __init__(self, kafka: Broker, directory: Path, *applications: Application) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory / "state"
        self._out = directory / "original.log"
        words = [":".join((app.app_id, app.topology, app.out, *app.inputs)) for app in applications]
        command = _command(_class_path(), "WARN", "Original", "run", kafka.bootstrap, str(self.directory), *words)
        with self._out.open("w") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
        self._await([f"{app.app_id} RUNNING" for app in applications])

    def _await(self, states: list[str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not set(states) <= set(self._out.read_text().splitlines()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka Streams does not run:\n{self._out.read_text()[-4000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End in order: what was read is committed, and the groups are left."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            code = self._process.wait(PATIENCE)
            assert code == 0, self._out.read_text()[-4000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "Original":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
