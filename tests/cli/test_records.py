"""`headwater produce` and `headwater consume`: what goes in comes out, as text and as JSON lines."""

import base64
import json
import time
from pathlib import Path

import pytest

from tests.brokers import BOTH
from tests.cli.conftest import Command


@pytest.fixture
def orders(headwater: Command) -> Command:
    """A log with an empty topic `orders` of two partitions."""
    assert headwater("topics", "create", "orders", "--partitions", "2").code == 0
    return headwater


@BOTH
def test_lines_in_lines_out(orders: Command) -> None:
    result = orders("produce", "orders", "--partition", "0", stdin="tea\nmañana\n\n日本\r\nlast".encode())
    assert (result.code, result.out, result.err) == (0, b"", "")
    assert orders("consume", "orders").text == "tea\nmañana\n\n日本\nlast\n"


@BOTH
def test_binary_values_come_out_as_they_went_in(orders: Command) -> None:
    blob = bytes(set(range(256)) - {10, 13})
    orders("produce", "orders", stdin=blob + b"\n")
    assert orders("consume", "orders").out == blob + b"\n"
    (record,) = [json.loads(line) for line in orders("consume", "orders", "--json").lines]
    assert base64.b64decode(record["value_base64"]) == blob
    assert "value" not in record


@BOTH
def test_nothing_in_nothing_out(orders: Command) -> None:
    assert orders("produce", "orders", "--json").json == {"topic": "orders", "records": 0}
    result = orders("consume", "orders")
    assert (result.code, result.out, result.err) == (0, b"", "")


@BOTH
def test_keys_headers_and_times_in_the_manner_of_kafkas_console(orders: Command) -> None:
    orders(
        "produce", "orders", "--key-separator", r"\t", "--null-marker", "NULL", "--timestamp", "5000",
        "--header", "a=1=2", "--header", "b=", stdin="k\tv\tw\nü\tNULL\n".encode(),
    )  # fmt: skip
    prints = ["--print-key", "--print-headers", "--print-offset", "--print-partition", "--print-timestamp"]
    assert orders("consume", "orders", *prints).lines == [
        "CreateTime:5000\tPartition:0\tOffset:0\ta:1=2,b:\tk\tv\tw",
        "CreateTime:5000\tPartition:0\tOffset:1\ta:1=2,b:\tü\tnull",
    ]
    assert orders("consume", "orders", "--print-key", "--separator", " | ").lines == ["k | v\tw", "ü | null"]
    orders("topics", "create", "bare")
    orders("produce", "bare", stdin=b"x\n")
    assert orders("consume", "bare", "--print-headers", "--print-key").text == "NO_HEADERS\tnull\tx\n"


@BOTH
def test_a_line_without_a_separator_is_named(orders: Command) -> None:
    result = orders("produce", "orders", "--key-separator", ":", stdin=b"a:1\nb\nc:3\n")
    assert result.code == 1
    assert result.err == "headwater: standard input:2: there is no ':' between key and value in the line.\n"
    assert orders("consume", "orders").text == "1\n"


def test_files_in_turn_and_as_a_whole(orders: Command, folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"1\n2")
    (folder / "b.bin").write_bytes(b"\0\n\xff\n")
    result = orders("produce", "orders", "a.txt", "-", "--partition", "1", "--json", stdin=b"3\n")
    assert result.json == {"topic": "orders", "records": 3}
    assert orders("consume", "orders").text == "1\n2\n3\n"
    orders("topics", "create", "files")
    orders("produce", "files", "b.bin", "--whole", "--key", "b")
    assert orders("consume", "files").out == b"\0\n\xff\n\n"
    missing = orders("produce", "orders", "none.txt")
    assert (missing.code, missing.err) == (1, "headwater: Cannot read none.txt: No such file or directory.\n")
    assert orders("produce", "orders", str(folder)).err == f"headwater: Cannot read {folder}: Is a directory.\n"


@BOTH
def test_json_lines_carry_every_part(orders: Command) -> None:
    given = [
        {"key": "ann", "value": "tea", "headers": {"a": "ü", "b": None}, "timestamp": 7, "partition": 1},
        {"key": None, "value": {"amount": 12.5}, "timestamp": 8, "partition": 1},
        {"key_base64": "/w==", "value": None, "timestamp": 9, "partition": 1},
        {"value": [1, "x"], "headers": [{"name": "c", "value_base64": "AP8="}], "timestamp": 10, "partition": 1},
    ]
    lines = "\n".join(json.dumps(record) for record in given) + "\n\n"
    assert orders("produce", "orders", "--json-lines", "--key", "else", stdin=lines.encode()).err == ""
    found = [json.loads(line) for line in orders("consume", "orders", "--json").lines]
    place = {"topic": "orders", "partition": 1}
    text = [{"name": "a", "value": "ü"}, {"name": "b", "value": None}]
    assert found == [
        {**place, "offset": 0, "timestamp": 7, "key": "ann", "value": "tea", "headers": text},
        {**place, "offset": 1, "timestamp": 8, "key": None, "value": '{"amount":12.5}', "headers": []},
        {**place, "offset": 2, "timestamp": 9, "key_base64": "/w==", "value": None, "headers": []},
        {**place, "offset": 3, "timestamp": 10, "key": "else", "value": '[1,"x"]'}
        | {"headers": [{"name": "c", "value_base64": "AP8="}]},
    ]


def test_what_consume_prints_produce_takes(orders: Command) -> None:
    orders("produce", "orders", "--key-separator", ":", "--header", "h=v", stdin=b"a:1\nb:\xff\nc:3\n")
    lines = orders("consume", "orders", "--json").out
    orders("topics", "create", "copy", "--partitions", "2")
    assert orders("produce", "copy", "--json-lines", stdin=lines).code == 0
    assert orders("consume", "copy", "--json").out == lines.replace(b'"orders"', b'"copy"')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "the line is no JSON object"),
        (b"[]", "the line is no JSON object"),
        (b'{"value": "\xff"}', "the line is no JSON object"),
        (b"{}", "the value is missing"),
        (b'{"value": 1, "vlaue": 2}', "there is no field vlaue"),
        (b'{"value_base64": "?"}', "value_base64 is not base64"),
        (b'{"value_base64": 5}', "value_base64 is not base64"),
        (b'{"value": 1, "partition": "0"}', "partition is a whole number"),
        (b'{"value": 1, "partition": 2}', "has the partitions 0 to 1 and no 2"),
        (b'{"value": 1, "timestamp": -1}', "a timestamp is epoch milliseconds"),
        (b'{"value": 1, "headers": "x"}', "headers are"),
        (b'{"value": 1, "headers": [["a", "b"]]}', "headers are"),
    ],
)
def test_a_bad_json_line_is_named(orders: Command, line: bytes, message: str) -> None:
    result = orders("produce", "orders", "--json-lines", stdin=b'{"value": "before"}\n' + line + b"\n")
    assert result.code == 1
    assert result.err.startswith("headwater: standard input:2: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert orders("consume", "orders").text == "before\n"


@BOTH
def test_unknown_places(orders: Command) -> None:
    for words, message in [
        (["produce", "nowhere"], "There is no topic 'nowhere'"),
        (["produce", "orders", "--partition", "2"], "has the partitions 0 to 1 and no 2"),
        (["consume", "nowhere"], "There is no topic 'nowhere'"),
        (["consume", "orders", "nowhere"], "There is no topic 'nowhere'"),
        (["consume", "orders", "--partition", "2"], "has the partitions 0 to 1 and no 2"),
        (["consume", "orders", "--offset", "1"], "-0 has no offset 1"),
    ]:
        result = orders(*words, stdin=b"x\n")
        assert (result.code, result.out) == (1, b""), words
        assert message in result.err


def test_a_compacted_topic_wants_keys(headwater: Command) -> None:
    headwater("topics", "create", "users", "--compact")
    assert "compacted by key: give each record for it a key" in headwater("produce", "users", stdin=b"x\n").err
    assert headwater("produce", "users", "--key", "k", stdin=b"x\n").code == 0


def test_where_to_begin_and_when_to_end(headwater: Command) -> None:
    headwater("topics", "create", "orders", "--partitions", "2")
    for number in range(6):
        place = ["--partition", str(number % 2), "--timestamp", f"{number}000"]
        headwater("produce", "orders", *place, stdin=b"%d\n" % number)
    assert headwater("consume", "orders", "--from-beginning").text.split() == ["0", "2", "4", "1", "3", "5"]
    assert headwater("consume", "orders", "--partition", "1").text.split() == ["1", "3", "5"]
    assert headwater("consume", "orders", "--partition", "1", "--offset", "2").text.split() == ["5"]
    assert headwater("consume", "orders", "--time", "3000").text.split() == ["4", "3", "5"]
    assert headwater("consume", "orders", "--time", "1970-01-01T00:00:04Z").text.split() == ["4", "5"]
    assert headwater("consume", "orders", "--time", "1h").text == ""
    assert headwater("consume", "orders", "-n", "2").text.split() == ["0", "2"]
    assert headwater("consume", "orders", "-n", "0").text == ""
    assert headwater("consume", "orders", "-n", "3", "--follow").text.split() == ["0", "2", "4"]
    start = time.monotonic()
    assert headwater("consume", "orders", "--timeout", "300ms").text.split() == ["0", "2", "4", "1", "3", "5"]
    assert 0.3 <= time.monotonic() - start < 30


@BOTH
def test_a_group_goes_on_where_it_was(headwater: Command) -> None:
    headwater("topics", "create", "orders")
    headwater("produce", "orders", stdin=b"0\n1\n2\n3\n")
    assert headwater("consume", "orders", "--group", "kitchen", "-n", "3").text == "0\n1\n2\n"
    assert headwater("consume", "orders", "--group", "kitchen").text == "3\n"
    assert headwater("consume", "orders", "--group", "kitchen").text == ""
    assert headwater("consume", "orders", "--group", "other", "--offset", "2").text == "2\n3\n"


@BOTH
def test_the_words_of_kafkas_consoles(headwater: Command) -> None:
    created = headwater("topics", "--create", "--topic", "orders", "--partitions", "1", "--replication-factor", "1")
    assert created.code == 0, created.err
    keyed = ["--property", "parse.key=true", "--property", "key.separator=-", "--property", "null.marker=NULL"]
    assert headwater("produce", "--topic", "orders", *keyed, stdin=b"ann-tea-pot\nbob-NULL\n").err == ""
    assert headwater("produce", "--topic=orders", "--reader-property", "parse.key=true", stdin=b"c\tx\n").err == ""
    read = ["consume", "--topic", "orders", "--from-beginning"]
    prints = [f"--property=print.{part}=true" for part in ("key", "partition", "offset", "headers")]
    assert headwater(*read, *prints, "--property", "key.separator=|").lines == [
        "Partition:0|Offset:0|NO_HEADERS|ann|tea-pot",
        "Partition:0|Offset:1|NO_HEADERS|bob|null",
        "Partition:0|Offset:2|NO_HEADERS|c|x",
    ]
    assert headwater(*read, "--max-messages", "1", "--formatter-property", "print.value=false").lines == [""]
    assert headwater("consume", "--topic", "orders", "--partition", "0", "--offset", "2").lines == ["x"]
    assert (
        headwater("consume", "--topic", "orders", "--offset", "earliest", "--timeout-ms", "100").lines[0] == "tea-pot"
    )
    wrong = headwater(*read, "--property", "print.keys=true")
    assert "--property print.keys=true: write print.timestamp=…, print.partition=…" in wrong.err
    assert [info["name"] for info in headwater("topics", "--list", "--json").json] == ["orders"]
    assert headwater("topics", "--describe", "--topic", "orders").lines[0] == "orders"
    assert headwater("topics", "--alter", "--topic", "orders", "--partitions", "2").code == 0
    assert headwater("topics", "--delete", "--topic", "orders").lines == ["orders is deleted"]


@BOTH
def test_the_words_of_kafka_consumer_groups(headwater: Command) -> None:
    headwater("topics", "create", "orders")
    headwater("produce", "orders", stdin=b"0\n1\n2\n")
    headwater("consume", "orders", "--group", "kitchen")
    assert headwater("groups", "--list", "--json").json == [{"group": "kitchen", "members": 0, "lag": 0}]
    reset = ["groups", "--reset-offsets", "--group", "kitchen", "--topic", "orders:0", "--to-offset", "1", "--json"]
    changes = [{"topic": "orders", "partition": 0, "before": 3, "after": 1}]
    # Theirs changes nothing unless it is told to.
    assert headwater(*reset).json == headwater(*reset).json == changes
    assert headwater(*reset, "--execute").json == changes
    (described,) = headwater("groups", "--describe", "--group", "kitchen", "--json").json
    assert [at["lag"] for at in described["offsets"]] == [2]
    assert headwater("groups", "--delete", "--group", "kitchen").lines == ["kitchen is deleted"]
