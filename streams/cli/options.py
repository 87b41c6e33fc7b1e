"""What the commands' options have in common: how a command is declared, which broker it uses, and how times, durations
and sizes are written. It owns their spelling; what a command does with them is the command's."""

import argparse
import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only a name in annotations: at run time it is one of argparse's own.
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = [
    "CONFIG_FILE",
    *("add_broker", "add_command", "add_group", "add_json", "add_on"),
    *("broker", "count", "duration", "moment", "setting", "size", "trigger"),
]

CONFIG_FILE = "headwater.toml"
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_SIZES = {"": 1, "b": 1} | {
    unit: int(base**power)
    for power, letter in enumerate("kmgt", 1)
    for unit, base in ((letter, 1024), (f"{letter}ib", 1024), (f"{letter}b", 1000))
}


def add_group(commands: "Commands", name: str, summary: str) -> "Commands":
    """Declare a command that has commands of its own, and return where they are declared."""
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    return parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True, title="commands")


def add_command(
    commands: "Commands",
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
    more: str = "",
) -> argparse.ArgumentParser:
    """Declare a command, with its examples under its help, and return its parser."""
    lines = "\n".join(f"  {line}" if line else "" for line in examples.strip().split("\n"))
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.{' ' if more else ''}{more}",
        epilog=f"examples:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_broker(parser: argparse.ArgumentParser, *, config: bool = True) -> None:
    """Declare which broker is meant, and how it is talked to."""
    where = parser.add_argument_group("where, and with which settings")
    which = where.add_mutually_exclusive_group()
    which.add_argument(
        "--broker",
        metavar="ADDRESS",
        help="log://<directory> or kafka://<host>:<port> (default: $HEADWATER_BROKER, else log://./.headwater)",
    )
    which.add_argument("--bootstrap-server", metavar="HOST:PORT", help="the same as --broker kafka://HOST:PORT")
    if config:
        where.add_argument("--config", metavar="FILE", help=f"a TOML file of settings (default: ./{CONFIG_FILE})")
    where.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Kafka's client by librdkafka's name (security.protocol=SASL_SSL), of an application by "
        "Config's (cache_bytes=64MiB) or Kafka Streams' (commit.interval.ms=200); may be repeated",
    )


def add_on(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--on", choices=["local", "spark"], default="local", metavar="ENGINE", help=what)


def add_json(parser: argparse.ArgumentParser, what: str = "print JSON, for scripts") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def broker(args: argparse.Namespace) -> str:
    """Return the address that the options, the environment, the file or the default gives."""
    from headwater.streams.broker import DEFAULT_BROKER
    from headwater.streams.cli.settings import file_settings

    if args.bootstrap_server:
        return f"kafka://{args.bootstrap_server}"
    return args.broker or os.environ.get("HEADWATER_BROKER") or file_settings(args).broker or DEFAULT_BROKER


def count(text: str) -> int:
    """Read a whole number that is not negative.

    >>> count("12"), count("1_000")
    (12, 1000)
    """
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return number


def duration(text: str) -> timedelta:
    """Read a duration: a number and ms, s, m, h, d or w, several of them if need be.

    >>> duration("90s"), duration("1d12h")
    (datetime.timedelta(seconds=90), datetime.timedelta(days=1, seconds=43200))
    """
    parts = re.findall(r"(\d+)(ms|[smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write it like 500ms, 90s, 15m, 12h, 7d or 1d12h")
    try:
        return timedelta(milliseconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is too long") from None


def trigger(text: str) -> timedelta | str:
    """Read when batches start: a duration, or the word for all that is there.

    >>> trigger("5s"), trigger("available-now")
    (datetime.timedelta(seconds=5), 'available-now')
    """
    if text == "available-now":
        return text
    try:
        return duration(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or available-now") from None


def setting(text: str) -> tuple[str, str]:
    """Read KEY=VALUE.

    >>> setting("spark.executor.memory=4g")
    ('spark.executor.memory', '4g')
    """
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: write it like spark.executor.memory=4g")
    return name, value


def size(text: str) -> int:
    """Read a number of bytes, with a unit if need be.

    >>> size("512"), size("64MiB"), size("64M"), size("1GB")
    (512, 67108864, 67108864, 1000000000)
    """
    found = re.fullmatch(r"(\d+) ?([a-z]*)", text.lower())
    if not found or found[2] not in _SIZES:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write it like 1000, 512KiB, 64MiB or 1GB")
    return int(found[1]) * _SIZES[found[2]]


def moment(text: str) -> datetime:
    """Read a point in time: ISO 8601 (local unless it says otherwise), epoch milliseconds, or a duration before now.

    >>> moment("2026-01-31T12:00:00Z").timestamp(), moment("1769860800000").timestamp()
    (1769860800.0, 1769860800.0)
    >>> 59 < (datetime.now().astimezone() - moment("1m")).total_seconds() < 61
    True
    """
    try:
        if text.isdigit():
            return datetime.fromtimestamp(int(text) / 1000).astimezone()
        if re.fullmatch(r"(\d+(ms|[smhdw]))+", text):
            return datetime.now().astimezone() - duration(text)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write it like 2026-01-31T12:00, 1769860800000 (epoch milliseconds) or 15m (ago)"
        ) from None
