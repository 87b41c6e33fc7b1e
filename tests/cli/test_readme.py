"""The commands of the README's "As a service", run as they stand there."""

import re
import shlex
from pathlib import Path

from tests.cli.conftest import Command
from tests.cli.services import service
from tests.streams.apps import until

ROOT = Path(__file__).parents[2]


def commands() -> list[list[str]]:
    (block,) = re.findall(r"## As a service\n.*?```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_the_commands_of_the_readme(folder: Path, headwater: Command) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    create, produce, run, query, top, consume = (words[1:] for words in commands())
    assert headwater(*create).code == 0
    assert produce[-2:] == ["<", "book.txt"]
    assert headwater(*produce[:-2], stdin=b"call me ishmael\nthe whale the whale\n").code == 0
    assert run[0] == "run"
    with service(folder, *run[2:], app=run[1]):
        until(lambda: re.search(r"whale +2", headwater(*query).text))
        shown = headwater(*top, "--once")
        assert "word_count" in shown.text
        assert headwater(*consume, "--max-messages", "7", "--timeout", "60s").text.count("\n") == 7
