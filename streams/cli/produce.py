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
from headwater.streams.cli.options import add_broker, add_command, add_json, broker, count, moment
from headwater.streams.cli.output import print_json, progress

if TYPE_CHECKING:
    from headwater.streams.cli.options import Commands

__all__ = ["add"]

_ESCAPES = {"t": "\t", "n": "\n", "0": "\0", "\\": "\\"}
_KNOWN = {"topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers"}
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
    parser.add_argument("--sync", action="store_true", help="return only when all is on the disk")
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

    from headwater.streams.broker import open_log
    from headwater.streams.producer import Producer

    # Asked before anything is read: else a wrong name shows only after the first line was typed.
    open_log(broker(args), create=False).topic(args.topic)
    common: _Fields = {"key": args.key, "headers": args.headers, "partition": args.partition, "timestamp": None}
    if args.timestamp is not None:
        common["timestamp"] = int(args.timestamp.timestamp() * 1000)
    sent = 0
    # On a terminal each line is to be seen by others at once.
    linger = timedelta(0) if sys.stdin.isatty() and not args.files else timedelta(milliseconds=5)
    with Producer(broker(args), sync=args.sync, linger=linger) as producer:
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
    import msgspec

    try:
        given = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StreamsError(f"{where}: the line is no JSON object: {error}.") from error
    if unknown := given.keys() - _KNOWN:
        known = ", ".join(sorted(_KNOWN))
        raise StreamsError(f"{where}: there is no field {', '.join(sorted(unknown))}, only {known}.")
    if not given.keys() & {"value", "value_base64"}:
        raise StreamsError(f"{where}: the value is missing; write null for a tombstone.")
    fields: _Fields = {"value": _bytes(where, given, "value")}
    if given.keys() & {"key", "key_base64"}:
        fields["key"] = _bytes(where, given, "key")
    for name in ("partition", "timestamp"):
        if given.get(name) is not None:
            if type(given[name]) is not int:
                raise StreamsError(f"{where}: {name} is a whole number and not {given[name]!r}.")
            fields[name] = given[name]
    if given.get("headers"):
        fields["headers"] = [*common, *_headers(where, given["headers"])]
    return fields


def _bytes(where: str, given: _Fields, name: str) -> bytes | None:
    import base64
    import binascii

    import msgspec

    if f"{name}_base64" in given:
        try:
            return base64.b64decode(given[f"{name}_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise StreamsError(f"{where}: {name}_base64 is not base64: {error}.") from error
    value = given.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _headers(where: str, given: object) -> Iterator[tuple[str, bytes | None]]:
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    for header in given if isinstance(given, list) else [given]:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise StreamsError(
                f'{where}: headers are {{"NAME": "VALUE", …}} or [{{"name": …, "value": …}}, …] and not {given!r}.'
            )
        yield header["name"], _bytes(where, header, "value")
