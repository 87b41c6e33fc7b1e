"""`headwater topics`, and what all commands share: exit codes, the broker, messages."""

import argparse
import re
from datetime import timedelta
from pathlib import Path

import pytest

from headwater.streams.cli import _parser, main
from headwater.streams.cli.options import count, duration, moment, size
from tests.cli.conftest import Command


def leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """All commands that do something."""
    below = [
        child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for child in action.choices.values()
    ]
    return [leaf for child in below for leaf in leaves(child)] if below else [parser]


@pytest.mark.parametrize("parser", [pytest.param(leaf, id=leaf.prog) for leaf in leaves(_parser())])
def test_every_command_has_examples_and_json(parser: argparse.ArgumentParser) -> None:
    text = parser.format_help()
    assert "examples:" in text
    assert f"  {parser.prog}" in (parser.epilog or "")
    assert "--json" in text


def test_no_command_is_a_usage_error(headwater: Command) -> None:
    result = headwater()
    assert (result.code, result.out) == (2, b"")
    assert "topics" in result.err
    assert headwater("--help").code == 0
    assert headwater("--version").lines[0].startswith("headwater ")


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["topics"],
        ["topics", "create"],
        ["topics", "create", "a", "--partitions", "two"],
        ["topics", "create", "a", "--partitions", "-1"],
        ["topics", "create", "a", "--retention", "7"],
        ["topics", "create", "a", "--segment-bytes", "big"],
        ["topics", "create", "a", "--compression", "gzip"],
        ["consume"],
        ["consume", "a", "--time", "noon"],
        ["consume", "a", "--latest", "--offset", "1"],
        ["consume", "a", "--group", "g", "--partition", "0"],
        ["produce", "a", "--header", "x"],
        ["produce", "a", "--key-separator", ""],
        ["produce", "a", "--json-lines", "--whole"],
        ["groups", "reset-offsets", "g"],
        ["groups", "reset-offsets", "g", "--to-earliest", "--to-latest"],
        ["log", "delete-records", "a", "--before", "1"],
        ["describe", "a.py", "--dot", "--mermaid"],
    ],
)
def test_a_wrong_command_line_is_code_2_and_changes_nothing(headwater: Command, folder: Path, words: list[str]) -> None:
    result = headwater(*words)
    assert (result.code, result.out) == (2, b"")
    assert "usage: headwater" in result.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list"],
        ["topics", "describe"],
        ["topics", "delete", "a"],
        ["topics", "alter", "a", "--partitions", "2"],
        ["produce", "a"],
        ["consume", "a"],
        ["groups", "list"],
        ["groups", "reset-offsets", "g", "--to-earliest"],
        ["log", "dump", "a"],
        ["log", "verify"],
        ["log", "maintain"],
    ],
)
def test_without_a_log_it_says_so_and_makes_none(headwater: Command, folder: Path, words: list[str]) -> None:
    result = headwater(*words)
    assert (result.code, result.out) == (1, b"")
    assert result.err == (
        f"headwater: There is no log in {folder}/.headwater: create a topic there (headwater topics create), "
        "or give the address of another (--broker log://<directory>).\n"
    )
    assert list(folder.iterdir()) == []


def test_the_broker_is_the_options_or_the_environments(
    headwater: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_BROKER", f"log://{folder}/environment")
    assert headwater("topics", "create", "a").code == 0
    assert headwater("topics", "create", "b", "--broker", "log://option").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["environment", "option"]
    assert [info["name"] for info in headwater("topics", "list", "--json").json] == ["a"]


def test_a_cluster_that_is_not_there_is_told_of_soon(headwater: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.streams.kafka.questions._PATIENCE", 0.1)
    for words in (["--broker", "kafka://127.0.0.1:1"], ["--bootstrap-server", "127.0.0.1:1"]):
        result = headwater("topics", "list", *words)
        assert result.code == 1
        assert "Kafka at 127.0.0.1:1 cannot say which topics it has" in result.err
        assert "start it, or correct the address" in result.err


def test_a_topics_life(headwater: Command) -> None:
    result = headwater("topics", "create", "orders", "users", "--partitions", "3", "--retention", "30d")
    assert result.lines[0] == "orders is there: 3 partitions, cleanup by delete, kept 30d"
    assert headwater("topics", "list").lines == [
        "topic   partitions  cleanup  kept",
        "orders           3  delete   30d",
        "users            3  delete   30d",
    ]
    changes = ["--partitions", "4", "--compact", "--retention-bytes", "1GB"]
    (altered,) = headwater("topics", "alter", "orders", *changes, "--json").json
    assert (altered["partitions"], altered["compact"], altered["delete"]) == (4, True, True)
    assert (altered["retention_ms"], altered["retention_bytes"]) == (None, 10**9)
    headwater("topics", "alter", "orders", "--no-compact", "--retention", "forever", "--retention-bytes", "unlimited")
    (altered,) = headwater("topics", "describe", "orders", "--json").json
    assert (altered["info"]["compact"], altered["info"]["retention_bytes"]) == (False, None)
    assert [partition["end"] for partition in altered["partitions"]] == [0] * 4
    assert headwater("topics", "delete", "orders").text == "orders is deleted\n"
    assert [info["name"] for info in headwater("topics", "list", "--json").json] == ["users"]


def test_describe_shows_what_is_there_and_that_there_is_one_copy(headwater: Command) -> None:
    headwater("topics", "create", "orders", "--compact", "--compression", "zstd", "--replication-factor", "1")
    headwater("produce", "orders", "--key", "k", "--timestamp", "2026-01-31T12:00:00Z", stdin=b"x\n")
    *lines, last = headwater("topics", "describe").lines
    assert lines == [
        "orders",
        "  copies       1 (the embedded log keeps one copy, on this machine)",
        "  cleanup      compact",
        "  kept         forever",
        "  segments     64 MiB or 7d",
        "  compression  zstd",
        "partition  start  end  size  segments  last record",
    ]
    assert re.fullmatch(r" +0 +0 +1  \d+ B +1  2026-01-31T12:00:00.000Z", last)


def test_faults_are_told_in_a_line_with_a_remedy(headwater: Command, folder: Path) -> None:
    headwater("topics", "create", "orders", "--partitions", "2")
    for words, message in [
        (["topics", "create", "orders"], "There is a topic 'orders' already"),
        (["topics", "create", "a/b"], "'a/b' cannot be a topic's name"),
        (["topics", "create", "x", "--partitions", "0"], "partitions=0: at least 1"),
        (["topics", "create", "x", "--replication-factor", "3"], "the embedded log keeps one copy"),
        (["topics", "alter", "orders"], "nothing to alter"),
        (["topics", "alter", "orders", "--partitions", "1"], "they may only grow"),
        (["topics", "alter", "orders", "--replication-factor", "2"], "the embedded log keeps one copy"),
        (["topics", "alter", "nowhere", "--partitions", "3"], "There is no topic 'nowhere'"),
        (["topics", "describe", "nowhere"], "There is no topic 'nowhere'"),
        (["topics", "delete", "nowhere"], "There is no topic 'nowhere'"),
    ]:
        result = headwater(*words)
        assert (result.code, result.out) == (1, b""), words
        assert result.err.startswith("headwater: "), words
        assert message in result.err
        assert result.err.count("\n") == 1
    assert headwater("topics", "create", "orders", "--if-not-exists").code == 0
    assert headwater("topics", "delete", "nowhere", "--if-exists", "--json").json == {"deleted": []}
    assert [info["partitions"] for info in headwater("topics", "list", "--json").json] == [2]


def test_a_file_where_the_log_should_be(headwater: Command, folder: Path) -> None:
    (folder / ".headwater").write_text("not a log")
    result = headwater("topics", "create", "orders")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert ".headwater" in result.err


def test_main_without_arguments_takes_the_processes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("sys.argv", ["headwater", "topics", "create", "orders"])
    assert main() == 0
    assert (folder / ".headwater" / "topics" / "orders").is_dir()


def test_durations_sizes_and_counts() -> None:
    assert duration("1w2d3h4m5s6ms") == timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5, milliseconds=6)
    assert [size(text) for text in ("0", "1k", "1KiB", "1KB", "2 MiB", "1t")] == [0, 1024, 1024, 1000, 2 << 20, 1 << 40]
    for read, wrong in [
        (duration, ""), (duration, "7"), (duration, "7d!"), (duration, "d"), (duration, "9" * 30 + "d"),
        (size, ""), (size, "-1"), (size, "1.5G"), (size, "1xb"),
        (count, "-1"), (count, "1.0"), (count, ""),
        (moment, ""), (moment, "noon"), (moment, "2026-13-01"), (moment, "9" * 30), (moment, "-5"),
    ]:  # fmt: skip
        with pytest.raises(argparse.ArgumentTypeError, match=r"."):
            read(wrong)
    assert moment("2026-01-31").tzinfo is not None
