"""`headwater reset`: an application begins anew. It owns the options, the question whether that is meant, and what is
told; what is deleted is decided in streams/reset.py, and for Spark in streams/spark/reset.py."""

import argparse
import sys
from typing import TYPE_CHECKING

from headwater.errors import StreamsError
from headwater.streams.cli.options import add_broker, add_command, add_json, add_on, broker, count, moment
from headwater.streams.cli.output import print_json, print_table, time_text
from headwater.streams.cli.run import add_application, application
from headwater.streams.clocks import system_clock

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headwater.dsl.config import Config
    from headwater.dsl.topology import Topology
    from headwater.streams.cli.options import Commands
    from headwater.streams.reset import Reset
    from headwater.streams.spark.reset import SparkReset
    from headwater.streams.stream_time import StreamTimes

__all__ = ["add"]

# What is given for the option without a time.
_BY_ITSELF = -1


def add(commands: "Commands") -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "reset",
        _reset,
        "let an application begin anew",
        """
headwater reset revenue.py --dry-run
headwater reset revenue.py                      # from where its sources say, the beginning unless they say otherwise
headwater reset revenue.py --to-time 2h --yes   # only the records of the last two hours
headwater reset revenue.py --to-latest --topic orders
headwater reset revenue.py --on spark           # its query's checkpoint
headwater reset revenue.py --stream-time        # after a record from the future: state stays, new records count again
headwater reset revenue.py --unused             # only the stores that were taken out of it, whose rows are kept aside
""",
        "Deletes its state, its internal topics and its offsets; its input and output topics stay as they are. Refused "
        "while\na worker is alive. With --stream-time it deletes nothing.",
    )
    add_application(parser)
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--to-earliest", action="store_true", help="read inputs from their oldest record")
    target.add_argument("--to-latest", action="store_true", help="read inputs from behind their newest record")
    target.add_argument("--to-offset", type=count, metavar="N", help="read inputs from this offset, or the nearest")
    target.add_argument(
        "--to-time", type=moment, metavar="TIME", help="from the first record of then: 2026-01-31T12:00, 15m (ago)"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="TOPIC",
        help="--to-… means only this input; may be repeated (default: all)",
    )
    target.add_argument(
        "--stream-time",
        type=_stream_time,
        nargs="?",
        const=_BY_ITSELF,
        metavar="TIME",
        help="keep state and offsets, and only set stream time back: to TIME, or if none is given to now, or to the "
        "oldest record that waits",
    )
    target.add_argument(
        "--unused",
        action="store_true",
        help="delete only what it no longer uses: stores and steps that were taken out before it last started",
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing, only show what would be done")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_broker(parser)
    add_json(parser)
    add_on(parser, "local (the default), or spark: delete the checkpoint of its query")
    parser.add_argument("--checkpoint", metavar="DIR", help="with --on spark: the one its query was given")


def _reset(args: argparse.Namespace) -> int:
    topology, config = application(args)
    if args.stream_time is not None:
        return _reset_stream_time(args, topology, config)
    with _opened(args, topology, config) as reset:
        if not args.json:
            _show(config.app_id, reset, args.unused)
        if args.dry_run:
            if not args.json:
                print("(nothing was changed: --dry-run)")
        elif args.yes or args.json or _sure():
            reset.run()
            if not args.json:
                print(
                    f"{config.app_id} goes on as it is when it is started."
                    if args.unused
                    else f"{config.app_id} will begin anew when it is started."
                )
        else:
            print("Nothing was changed.", file=sys.stderr)
            return 1
        if args.json:
            print_json(
                {
                    "app-id": config.app_id,
                    "state": [str(path) for path in reset.state],
                    "topics": reset.topics,
                    "stores": list(reset.stores),
                    "offsets": [
                        {"topic": topic, "partition": partition, "before": before, "after": after}
                        for (topic, partition), (before, after) in reset.offsets.items()
                    ],
                    "done": not args.dry_run,
                }
            )
    return 0


def _stream_time(text: str) -> int:
    return system_clock() if text == "now" else int(moment(text).timestamp() * 1000)


def _reset_stream_time(args: argparse.Namespace, topology: "Topology", config: "Config") -> int:
    if args.topics:
        raise StreamsError("--topic says where --to-… apply: stream time is set back for the whole application.")
    to = None if args.stream_time == _BY_ITSELF else args.stream_time
    with _opened_stream_times(args, topology, config, to) as times:
        if not args.json:
            after = {where: min(time, times.to) for where, time in times.before.items()}
            print_table(
                ["of", "stream time", "after"],
                [[where, _moment_text(time), _moment_text(after[where])] for where, time in times.before.items()],
            )
            print(f"No stream time stays above {time_text(times.to)}. State and offsets stay, what has expired is gone")
        if args.dry_run:
            if not args.json:
                print("(nothing was changed: --dry-run)")
        elif args.yes or args.json or _sure("changes stream time"):
            times.run()
            if not args.json:
                print(f"{config.app_id} will go on from there when it is started.")
        else:
            print("Nothing was changed.", file=sys.stderr)
            return 1
        if args.json:
            print_json(
                {"app-id": config.app_id, "to": times.to, "stream-times": times.before, "done": not args.dry_run}
            )
    return 0


def _moment_text(time: int) -> str | None:
    return None if time < 0 else time_text(time)


def _opened_stream_times(
    args: argparse.Namespace, topology: "Topology", config: "Config", to: int | None
) -> "AbstractContextManager[StreamTimes]":
    if args.on == "spark":
        from headwater.streams.spark.reset import open_spark_stream_time

        if to is None:
            raise StreamsError(
                "On Spark --stream-time needs a TIME: that of the oldest record that waits, or `now` if none waits."
            )
        return open_spark_stream_time(topology, config, broker(args), args.checkpoint, to)
    from headwater.streams.stream_time import open_stream_times

    if args.checkpoint is not None:
        raise StreamsError("--checkpoint: only with --on spark.")
    return open_stream_times(topology, config, broker(args), to)


def _opened(
    args: argparse.Namespace, topology: "Topology", config: "Config"
) -> "AbstractContextManager[Reset | SparkReset]":
    if args.on == "spark":
        return _opened_on_spark(args, config)
    from headwater.streams.reset import Target, open_reset

    if args.checkpoint is not None:
        raise StreamsError("--checkpoint: only with --on spark.")
    target: Target = None
    if args.to_earliest:
        target = "earliest"
    elif args.to_latest:
        target = "latest"
    elif args.to_offset is not None:
        target = args.to_offset
    elif args.to_time is not None:
        target = args.to_time
    if args.topics and target is None:
        raise StreamsError("--topic says where --to-earliest, --to-latest, --to-offset or --to-time apply: give one.")
    return open_reset(topology, config, broker(args), target, args.topics, unused=args.unused)


def _opened_on_spark(args: argparse.Namespace, config: "Config") -> "AbstractContextManager[SparkReset]":
    from headwater.streams.spark.reset import open_spark_reset

    if args.to_earliest or args.to_latest or args.to_offset is not None or args.to_time is not None or args.topics:
        raise StreamsError(
            "--to-… and --topic are for --on local: a query on Spark begins where its sources say (reset=), the "
            "beginning unless they say otherwise."
        )
    return open_spark_reset(config, broker(args), args.checkpoint, unused=args.unused)


def _show(app_id: str, reset: "Reset | SparkReset", unused: bool) -> None:
    if not reset.state and not reset.topics and not reset.stores:
        print(f"{app_id} has nothing unused." if unused else f"{app_id} has neither state nor internal topics.")
    for store in reset.stores:
        print(f"store to delete: {store}")
    for path in reset.state:
        print(f"state to delete: {path}")
    for topic in reset.topics:
        print(f"internal topic to delete: {topic}")
    if reset.offsets:
        print_table(
            ["topic", "partition", "before", "after"],
            [[topic, partition, before, after] for (topic, partition), (before, after) in reset.offsets.items()],
        )


def _sure(what: str = "deletes state") -> bool:
    if not sys.stdin.isatty():
        raise StreamsError(f"reset {what}: confirm with --yes, or look first with --dry-run.")
    print("Go on? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
