"""The `headwater` command. It owns the list of commands, the exit codes and how errors are told; each command is a
module of its own, which imports what it runs only when it runs, so that help and small commands start quickly.

Exit codes: 0 all went well; 1 it did not, and standard error says what, where and what to do; 2 the command line is
wrong; 130 interrupted.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence

from headwater.errors import StreamsError
from headwater.streams.cli.consume import add as add_consume
from headwater.streams.cli.describe import add as add_describe
from headwater.streams.cli.groups import add as add_groups
from headwater.streams.cli.kafka_tools import translated
from headwater.streams.cli.log import add as add_log
from headwater.streams.cli.produce import add as add_produce
from headwater.streams.cli.query import add as add_query
from headwater.streams.cli.reset import add as add_reset
from headwater.streams.cli.run import add as add_run
from headwater.streams.cli.top import add as add_top
from headwater.streams.cli.topics import add as add_topics

__all__ = ["main"]

_EPILOG = """\
a topic, a record in and out:
  headwater topics create orders
  echo '{"amount": 12}' | headwater produce orders
  headwater consume orders

Everything is kept in ./.headwater unless --broker or $HEADWATER_BROKER says otherwise. With --broker kafka://HOST:PORT
(or --bootstrap-server HOST:PORT) the same commands work on a Kafka cluster, and what kafka-topics, Kafka's consoles and
kafka-consumer-groups are told is understood here too:
  headwater topics --create --topic orders --partitions 3 --bootstrap-server localhost:9092
  headwater consume --topic orders --from-beginning --property print.key=true --bootstrap-server localhost:9092

`headwater COMMAND --help` shows a command's options and examples.
"""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        from importlib.metadata import version

        print(f"headwater {version('headwater')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headwater",
        description="Kafka Streams for Python: run topologies, and look after the topics they read and write.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    running = (add_run, add_top, add_query, add_describe, add_reset)
    for add in (*running, add_topics, add_produce, add_consume, add_groups, add_log):
        add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (that of the process unless given) and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets an escape, not a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser()
    try:
        args = parser.parse_args(translated(sys.argv[1:] if argv is None else argv))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        code: int = args.run(args)
        # Here and not at the interpreter's end, where a broken pipe could no longer be caught.
        sys.stdout.flush()
    except BrokenPipeError:
        return _without_reader()
    except (StreamsError, OSError) as error:
        print(f"headwater: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _without_reader() -> int:
    """Go quietly when whoever read our output has enough of it, as `head` has."""
    # What is still buffered goes nowhere: else the interpreter complains about it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
