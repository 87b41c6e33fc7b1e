"""The command line in this process: a log of its own in a directory of its own, and what a command gave."""

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.streams.cli import main


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


Command = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, with nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_BROKER", raising=False)
    return tmp_path


@pytest.fixture
def headwater(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
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
    """The environment of a process of our own, without the caller's broker."""
    return {name: text for name, text in os.environ.items() if name != "HEADWATER_BROKER"} | more
