"""`headwater produce`: lines, JSON lines or whole files become records. It owns how they are read; sending is the
Producer's."""

import argparse
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from headwater.errors import StreamsError
from headwater.streams.cli.kafka_tools import properties
from headwater.streams.cli.options import add_broker, add_command, add_json, broker, count, moment
from headwater.streams.cli.output import print_json, progress
from headwater.streams.cli.settings import client_settings

if TYPE_CHECKING:
    from headwater.streams.cli.options import Commands

__all__ = ["add"]

_ESCAPES = {"t": "\t", "n": "\n", "0": "\0", "\\": "\\"}
# The bar is moved once in so many records.
_SHOWN = 1000
_Fields = dict[str, Any]


def add(commands: "Commands") -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "produce",
        _produce,
        "send records to a topic, from standard input or files",
        r"""
echo '{"amount": 12}' | headwater produce orders
headwater produce orders orders-2026.txt --key-separator '\t'
headwater produce customers --key-separator : --null-marker NULL < changes.txt
headwater produce orders --json-lines < orders.jsonl
headwater produce photos cat.jpg --whole --key cat --header type=image/jpeg
headwater consume orders --json | jq -c 'del(.partition)' | headwater produce copy --json-lines
headwater produce --topic orders --property parse.key=true --property key.separator=: \
    --bootstrap-server host:9092 < orders.txt          # as kafka-console-producer
""",
        "Each line is a record's value, as it is.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("files", nargs="*", metavar="FILE", help="what to send (default: standard input, also -)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--key-separator", type=_unescaped, metavar="TEXT", help=r"a line is key, TEXT, value; \t: a tab")
    how.add_argument(
        "--json-lines",
        action="store_true",
        help="each line is a JSON object with value and, if need be, key, headers, partition and timestamp, as "
        "`consume --json` prints it: text as it is, other values as JSON, key_base64 and value_base64 as bytes",
    )
    how.add_argument(
        "--property",
        "--reader-property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="the same in the words of Kafka's console: parse.key=true, key.separator=- (a tab), null.marker=NULL",
    )
    how.add_argument("--whole", action="store_true", help="each file as a whole is one record's value")
    parser.add_argument("--key", metavar="TEXT", help="the key of all records that have none of their own")
    parser.add_argument("--null-marker", metavar="TEXT", help="a value that is exactly this means null (a tombstone)")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="NAME=VALUE",
        dest="headers",
        help="add a header to all records; may be repeated",
    )
    parser.add_argument("--partition", type=count, metavar="N", help="send to this one (default: by key, else in turn)")
    parser.add_argument("--timestamp", type=moment, metavar="TIME", help="of all records (default: now)")
    parser.add_argument("--sync", action="store_true", help="return only when all is on the log's disk")
    add_broker(parser)
    add_json(parser, "print how many records were sent as JSON")


def _unescaped(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the separator cannot be empty")
    return re.sub(r"\\([tn0\\])", lambda found: _ESCAPES[found[1]], text)


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no header: write NAME=VALUE")
    return name, value


def _produce(args: argparse.Namespace) -> int:
    from datetime import timedelta

    from headwater.streams.admin import Admin
    from headwater.streams.producer import Producer

    _heed_properties(args)
    kafka = client_settings(args)
    # Asked before anything is read: else a wrong name shows only after the first line was typed.
    Admin(broker(args), create=False, kafka=kafka).partitions(args.topic)
    common: _Fields = {"key": args.key, "headers": args.headers, "partition": args.partition, "timestamp": None}
    if args.timestamp is not None:
        common["timestamp"] = int(args.timestamp.timestamp() * 1000)
    sent = 0
    # On a terminal each line is to be seen by others at once.
    linger = timedelta(0) if sys.stdin.isatty() and not args.files else timedelta(milliseconds=5)
    with Producer(broker(args), sync=args.sync, linger=linger, kafka=kafka) as producer:
        for file in args.files or ["-"]:
            with _opened(file) as (name, stream, size), progress(name, size, bytes_=True) as show:
                for where, fields in _records(args, name, stream):
                    try:
                        producer.send(args.topic, **{**common, **fields})
                    except StreamsError as error:
                        raise StreamsError(f"{where}: {error} {_before(sent)}") from error
                    sent += 1
                    if size and sent % _SHOWN == 0:
                        show(stream.tell())
    if args.json:
        print_json({"topic": args.topic, "records": sent})
    elif sys.stderr.isatty():
        print(f"{sent:,} record{'' if sent == 1 else 's'} sent to {args.topic}", file=sys.stderr)
    return 0


def _heed_properties(args: argparse.Namespace) -> None:
    """Take over what is said in the words of Kafka's console."""
    said = properties(args.property, ["parse.key", "key.separator", "null.marker"])
    if said.get("parse.key", "false").lower() == "true":
        args.key_separator = _unescaped(said.get("key.separator", "\t"))
    args.null_marker = said.get("null.marker", args.null_marker)


def _before(sent: int) -> str:
    return f"(sent before it: {sent:,})"


@contextmanager
def _opened(file: str) -> Iterator[tuple[str, BinaryIO, int]]:
    """Give what to call the input, the input, and its size if that can be known."""
    if file == "-":
        yield "standard input", sys.stdin.buffer, 0
        return
    try:
        stream = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise StreamsError(f"Cannot read {file}: {error.strerror}.") from error
    with stream:
        status = os.fstat(stream.fileno())
        yield file, stream, status.st_size if stat.S_ISREG(status.st_mode) else 0


def _records(args: argparse.Namespace, name: str, stream: BinaryIO) -> Iterator[tuple[str, _Fields]]:
    """Yield each record's place and its fields that differ from the common ones."""
    null = None if args.null_marker is None else args.null_marker.encode()
    if args.whole:
        yield name, {"value": _or_null(stream.read(), null)}
        return
    separator = None if args.key_separator is None else args.key_separator.encode()
    for number, line in enumerate(_lines(stream), 1):
        where = f"{name}:{number}"
        if args.json_lines:
            if line.strip():
                yield where, _from_json(where, line, args.headers)
        elif separator is None:
            yield where, {"value": _or_null(line, null)}
        else:
            key, found, value = line.partition(separator)
            if not found:
                raise StreamsError(f"{where}: there is no {args.key_separator!r} between key and value in the line.")
            yield where, {"key": key, "value": _or_null(value, null)}


def _lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    for line in stream:
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        yield line


def _or_null(value: bytes, null: bytes | None) -> bytes | None:
    return None if value == null else value


def _from_json(where: str, line: bytes, common: list[tuple[str, str]]) -> _Fields:
    """What a line of JSON says of its record; where it was does not matter, but for its partition."""
    from headwater.streams.json_lines import fields_of

    fields = fields_of(where, line)
    for name in ("topic", "offset"):
        fields.pop(name, None)
    if "headers" in fields:
        fields["headers"] = [*common, *fields["headers"]]
    return fields
