"""`headwater consume`: the records of topics as text or JSON lines. It owns how they are shown and when it ends;
reading is the Consumer's."""

import argparse
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from headwater.streams.cli.kafka_tools import properties
from headwater.streams.cli.options import add_broker, add_command, add_json, broker, count, duration, moment
from headwater.streams.cli.settings import client_settings

if TYPE_CHECKING:
    from headwater.streams.cli.options import Commands
    from headwater.streams.consumer import Consumer, ConsumerRecord, Start

__all__ = ["add"]

_CHUNK = 1000
# What may stand before the value, in the order of Kafka's console.
_PARTS = ("timestamp", "partition", "offset", "headers", "key")
_FOREVER = timedelta(days=10_000)
# Control characters, which could do anything to a terminal; tabs and newlines are harmless.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def add(commands: "Commands") -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "consume",
        _consume,
        "print the records of topics",
        """
headwater consume orders                              # all there is
headwater consume orders --follow --latest            # what comes from now on
headwater consume orders --print-key --print-timestamp --max-messages 10
headwater consume orders --time 15m                   # of the last 15 minutes
headwater consume orders --partition 0 --offset 1200
headwater consume orders --group kitchen --follow     # shared with others of the group, goes on where it was
headwater consume orders --json | jq -r .value
headwater consume --topic orders --from-beginning --property print.key=true --property key.separator=: \\
    --bootstrap-server host:9092                      # as kafka-console-consumer, but it ends: -f follows
""",
        "Without --follow it ends when all there is has been read. In a group it goes on where the group was.",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_true", help="begin with the oldest records (the default)")
    begin.add_argument("--latest", action="store_true", help="begin behind the newest records; follows")
    begin.add_argument(
        "--offset", type=_offset, metavar="N", help="begin at this offset in each partition; also earliest, latest"
    )
    begin.add_argument(
        "--time", type=moment, metavar="TIME", help="begin with the first record from then: 2026-01-31T12:00, 15m (ago)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more until interrupted")
    parser.add_argument("-n", "--max-messages", type=count, metavar="N", help="end after so many records")
    parser.add_argument("--timeout", type=duration, metavar="TIME", help="end when nothing comes for so long")
    parser.add_argument("--timeout-ms", type=_milliseconds, dest="timeout", help=argparse.SUPPRESS)
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("-g", "--group", metavar="NAME", help="read as a member of this group; commit what was printed")
    whose.add_argument(
        "--partition", type=count, action="append", metavar="N", dest="partitions", help="only this; may be repeated"
    )
    for what in _PARTS:
        parser.add_argument(f"--print-{what}", action="store_true", help=f"print the {what} before the value")
    parser.add_argument("--separator", default="\t", metavar="TEXT", help="what stands between them (default: a tab)")
    parser.add_argument(
        "--property",
        "--formatter-property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="the same in the words of Kafka's console: print.key=true, key.separator=-; may be repeated",
    )
    add_broker(parser)
    add_json(parser, "print each record with all its parts as a line of JSON")


def _offset(text: str) -> int | str:
    return text if text in ("earliest", "latest") else count(text)


def _milliseconds(text: str) -> timedelta:
    return timedelta(milliseconds=count(text))


def _heed_properties(args: argparse.Namespace) -> None:
    """Take over what is said in the words of Kafka's console."""
    said = properties(args.property, [*(f"print.{what}" for what in _PARTS), "print.value", "key.separator"])
    for what in (*_PARTS, "value"):
        if f"print.{what}" in said:
            setattr(args, f"print_{what}", said[f"print.{what}"].lower() == "true")
    args.separator = said.get("key.separator", args.separator)


def _start(args: argparse.Namespace) -> "Start":
    if args.latest or args.offset == "latest":
        return "latest"
    if args.offset is not None:
        start: Start = args.offset
        return start
    return args.time or "earliest"


def _consume(args: argparse.Namespace) -> int:
    from headwater.streams.consumer import Consumer

    _heed_properties(args)
    if args.follow or _start(args) == "latest":
        patience = _FOREVER
    elif args.timeout is not None:
        patience = args.timeout
    else:
        # What a member of the group owned that has just gone comes to us a moment later.
        patience = timedelta(seconds=0.5 if args.group else 0)
    # A service manager's way to say Ctrl-C: what was printed is committed all the same.
    previous = signal.signal(signal.SIGTERM, _terminated)
    try:
        with Consumer(
            broker(args),
            args.topics,
            group=args.group,
            start=_start(args),
            partitions=args.partitions,
            commit_interval=timedelta(seconds=1),
            kafka=client_settings(args),
        ) as consumer:
            _print_all(consumer, args, patience)
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


def _terminated(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _print_all(consumer: "Consumer", args: argparse.Namespace, patience: timedelta) -> None:
    from headwater.streams.json_lines import line_of

    shown = line_of if args.json else _as_text(args)
    out = sys.stdout.buffer
    left = sys.maxsize if args.max_messages is None else args.max_messages
    printed: dict[tuple[str, int], int] = {}
    try:
        while left and (records := consumer.poll(min(_CHUNK, left), patience)):
            out.write(b"".join([shown(record) for record in records]))
            out.flush()
            left -= len(records)
            printed.update(((record.topic, record.partition), record.offset + 1) for record in records)
    except BaseException:
        if args.group:
            # Not what was polled: a part of that may not have been printed.
            own = set(consumer.assignment())
            consumer.commit({place: offset for place, offset in printed.items() if place in own})
        raise


def _as_text(args: argparse.Namespace) -> Callable[["ConsumerRecord"], bytes]:
    """Return what makes a line of a record, in the manner of Kafka's console consumer."""
    separator: bytes = args.separator.encode(errors="surrogateescape")
    terminal = sys.stdout.isatty()

    def shown(record: "ConsumerRecord") -> bytes:
        parts = []
        if args.print_timestamp:
            parts.append(b"CreateTime:%d" % record.timestamp)
        if args.print_partition:
            parts.append(b"Partition:%d" % record.partition)
        if args.print_offset:
            parts.append(b"Offset:%d" % record.offset)
        if args.print_headers:
            headers = [b"%s:%s" % (name.encode(), _or_null(value)) for name, value in record.headers]
            parts.append(b",".join(headers) or b"NO_HEADERS")
        if args.print_key:
            parts.append(_or_null(record.key))
        if getattr(args, "print_value", True):
            parts.append(_or_null(record.value))
        line = separator.join(parts)
        if terminal:
            line = line.decode(errors="backslashreplace").translate(_CONTROLS).encode()
        return line + b"\n"

    return shown


def _or_null(data: bytes | None) -> bytes:
    return b"null" if data is None else data
