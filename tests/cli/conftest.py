"""The command line in this process: a log of its own in a directory of its own, and what a command gave."""

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.dsl.config import Config
from headwater.streams.broker import is_kafka
from headwater.streams.cli import main
from headwater.streams.cli.settings import settings as merged_settings
from tests.brokers import empty_broker

# What of the environment would reach a command.
OURS = ("HEADWATER_BROKER", "HEADWATER_KAFKA_")


class Result(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def settings(pairs: list[str], given: dict[str, Any], **options: Any) -> Config:
    """The settings that `--set` pairs ask for, and other options of the same kind."""
    options = {"set": pairs, "config": None, "broker": None, "bootstrap_server": None} | options
    return merged_settings(argparse.Namespace(**options), given)


Command = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, with nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(OURS):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def broker(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The broker that commands use unless they are told otherwise: the log in the folder, or Kafka."""
    for address in empty_broker(request, folder / ".headwater"):
        if is_kafka(address):
            monkeypatch.setenv("HEADWATER_BROKER", address)
        yield address


@pytest.fixture
def headwater(
    broker: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Command:
    """Run a command: `headwater("topics", "list", stdin=b"…")`."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        with io.TextIOWrapper(io.BytesIO(stdin)) as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            code = main(words)
        out, err = capfdbinary.readouterr()
        return Result(code, out, err.decode())

    return run


def in_environment(**more: str) -> dict[str, str]:
    """The environment of a process of our own, without the caller's broker and settings."""
    return {name: text for name, text in os.environ.items() if not name.startswith(OURS)} | more
