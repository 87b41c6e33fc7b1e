"""`headwater log`: what lies in the files, and what is said of damage."""

import base64
import json
import os
from pathlib import Path

import pytest

from headwater.state.log import Log
from tests.brokers import BOTH
from tests.cli.conftest import Command


@pytest.fixture
def orders(headwater: Command, folder: Path) -> Command:
    """A topic `orders` with two batches of two records in its partition 1."""
    headwater("topics", "create", "orders", "--partitions", "2")
    # Not by `produce`, which on a busy machine may make more batches of them.
    with Log.open(folder / ".headwater") as log, log.partition("orders", 1) as partition:
        for pairs in (((b"a", b"1"), (b"b", b"2")), ((b"c", b"3"), (b"\xff", b"4"))):
            partition.append([(key, value, 1000, ()) for key, value in pairs])
    return headwater


def damaged(folder: Path) -> Path:
    """Flip a bit in the first batch and say in which file."""
    (file,) = (folder / ".headwater" / "topics" / "orders" / "1").glob("*.log")
    data = bytearray(file.read_bytes())
    data[80] ^= 1
    file.write_bytes(data)
    return file


def test_batches_and_records_are_listed(orders: Command) -> None:
    lines = orders("log", "dump", "orders", "--records").lines
    assert lines[0] == "orders-0: offsets 0 up to but not including 0"
    assert lines[1] == "orders-1: offsets 0 up to but not including 4"
    assert lines[2].startswith("  0..1  2 records  ")
    assert lines[2].endswith(".log@0")
    assert "1970-01-01T00:00:01.000Z .. 1970-01-01T00:00:01.000Z" in lines[2]
    assert lines[3] == "    0  1970-01-01T00:00:01.000Z  b'a'  b'1'"
    assert lines[5].startswith("  2..3  2 records  ")
    assert lines[7] == "    3  1970-01-01T00:00:01.000Z  b'\\xff'  b'4'"
    assert len(orders("log", "dump", "orders", "--partition", "1").lines) == 3


def test_batches_are_listed_as_json(orders: Command) -> None:
    batches = [json.loads(line) for line in orders("log", "dump", "orders", "--json", "--records").lines]
    assert [(one["topic"], one["partition"], one["base"], one["last"]) for one in batches] == [
        ("orders", 1, 0, 1),
        ("orders", 1, 2, 3),
    ]
    key, value, timestamp, headers, offset = batches[1]["records"][1]
    assert (base64.b64decode(key), base64.b64decode(value), timestamp, headers, offset) == (b"\xff", b"4", 1000, [], 3)


def test_a_sound_log_is_called_sound(orders: Command) -> None:
    result = orders("log", "verify")
    assert (result.code, result.text) == (0, "partitions read: 2; faults: none\n")
    assert orders("log", "verify", "orders", "--json").json == {"partitions": 2, "faults": []}


def test_damage_is_named_by_every_command_that_meets_it(orders: Command, folder: Path) -> None:
    file = damaged(folder)
    result = orders("log", "verify", "--json")
    assert result.code == 1
    (fault,) = result.json["faults"]
    assert (fault["topic"], fault["partition"]) == ("orders", 1)
    assert "orders-1@0 is damaged" in fault["fault"]
    assert str(file) in fault["fault"]
    assert orders("log", "verify").lines[-1] == "partitions read: 2; faults: 1"
    for words in (["consume", "orders"], ["log", "dump", "orders"]):
        result = orders(*words)
        assert result.code == 1, words
        assert "orders-1@0 is damaged" in result.err


def test_records_are_deleted_before_an_offset(orders: Command) -> None:
    result = orders("log", "delete-records", "orders", "--partition", "1", "--before", "3")
    assert (result.code, result.text) == (0, "orders-1 begins now at 3\n")
    assert orders("consume", "orders").text == "4\n"
    assert orders("consume", "orders", "--partition", "1", "--offset", "0").text == "4\n"
    result = orders("log", "delete-records", "orders", "--partition", "1", "--before", "99")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "no 5" in orders("log", "delete-records", "orders", "--partition", "5", "--before", "1").err


def test_maintenance_frees_what_is_too_old(headwater: Command, folder: Path) -> None:
    headwater("topics", "create", "orders", "--retention", "1d", "--segment-bytes", "200")
    for _ in range(3):
        headwater("produce", "orders", "--timestamp", "1000", stdin=b"x" * 150 + b"\n")
    assert headwater("log", "maintain", "--json").json["freed_bytes"] == 0, "they were written only now"
    for file in (folder / ".headwater" / "topics" / "orders" / "0").glob("*.log"):
        os.utime(file, (1, 1))
    result = headwater("log", "maintain", "--json")
    assert result.code == 0
    assert result.json["freed_bytes"] > 150
    assert headwater("log", "maintain").text == "0 bytes freed\n"


def test_unknown_topics(orders: Command) -> None:
    for words in (["dump", "nowhere"], ["verify", "nowhere"], ["dump", "orders", "--partition", "7"]):
        result = orders("log", *words)
        assert (result.code, result.out) == (1, b""), words
        assert "There is no topic 'nowhere'" in result.err or "no 7" in result.err


@BOTH
def test_topics_go_out_and_come_back(headwater: Command, folder: Path) -> None:
    headwater("topics", "create", "orders", "--partitions", "2")
    headwater("produce", "orders", "--key-separator", ":", "--timestamp", "5000", stdin=b"a:1\nb:\xff\nc:3\n")
    for file in ("orders.jsonl", "orders.parquet"):
        out = headwater("log", "export", "orders", "--to", file)
        assert (out.code, out.lines) == (0, [f"orders: 3 records moved to {file}"]), out.err
        back = headwater("log", "import", file, "--topic", f"from-{file}", "--json")
        assert back.json["records"] == {f"from-{file}": 3}
        assert back.json["offsets-kept"] is True
        again = headwater("log", "import", file, "--topic", f"from-{file}")
        assert "(the records have new offsets there" in again.text
        assert "is there already" in headwater("log", "export", "orders", "--to", file).err
        assert headwater("log", "export", "orders", "--to", file, "--replace").code == 0
    lines = headwater("log", "export", "orders", "--to", "-").out
    assert sorted(lines.splitlines()) == sorted(headwater("consume", "orders", "--json").out.splitlines())
    assert headwater("log", "import", "-", "--topic", "copy", "--partitions", "2", stdin=lines).code == 0
    copied = lines.decode().replace('"orders"', '"copy"').splitlines()
    assert sorted(headwater("consume", "copy", "--json").lines) == sorted(copied)
    assert headwater("log", "export", "orders", "--to", "log://backup").lines == ["orders: 3 records moved to log://backup"]
    assert (folder / "backup" / "topics" / "orders").is_dir()
    headwater("topics", "create", "empty")
    assert headwater("log", "export", "empty", "--to", "empty.parquet").lines == ["There was nothing to move."]
    assert headwater("log", "import", "empty.parquet", "--topic", "x").lines == ["There was nothing to move."]


def test_repair_shows_what_is_lost_and_does_it_only_when_told_to(orders: Command, folder: Path) -> None:
    file = damaged(folder)
    data = file.read_bytes()
    found = orders("log", "verify")
    assert (found.code, "headwater log repair orders" in found.text) == (1, True)
    for name in ("orders", "orders-1"):
        found = orders("log", "repair", name)
        assert found.code == 0, found.err
        assert "orders-1: offsets 0 to 1 lost: " in found.text
        assert "nothing was changed: --yes does it" in found.text
        assert file.read_bytes() == data
    found = orders("log", "repair", "orders", "--yes")
    assert (found.code, "done" in found.text) == (0, True), found.err
    assert orders("log", "verify").code == 0
    assert json.loads(orders("log", "repair", "orders", "--json").text)["done"] is False
    assert "nothing to repair" in orders("log", "repair", "orders").text
    assert orders("log", "repair", "nothing").code == 1
