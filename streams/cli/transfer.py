"""`headwater log export` and `log import`: topics moved to and from files and other brokers. It owns the options and
what is told; moving is streams/transfer.py's."""

import argparse
import sys
from typing import TYPE_CHECKING

from headwater.streams.cli.options import add_broker, add_command, add_json, broker, count, moment
from headwater.streams.cli.output import print_json, progress
from headwater.streams.cli.settings import client_settings

if TYPE_CHECKING:
    from headwater.streams.cli.options import Commands
    from headwater.streams.transfer import Moved

__all__ = ["add"]

_WHAT = (
    "Keys, values, headers, timestamps, partitions and their order\nare kept as they are. Offsets are kept in files; a "
    "log or a cluster gives its own. Settings of Kafka's client (--set,\n--config) hold for every cluster named."
)


def add(own: "Commands") -> None:
    """Declare the commands."""
    parser = add_command(
        own,
        "export",
        _export,
        "write topics to a file, or to another broker",
        """
headwater log export orders --to orders.jsonl
headwater log export orders payments --to shop.parquet --time 7d        # of the last 7 days
headwater log export orders --to - | gzip > orders.jsonl.gz
headwater log export orders --bootstrap-server host:9092 --to log://./dev   # from Kafka to a laptop
""",
        f"It ends with what there was when it began. {_WHAT}",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--to", required=True, metavar="PLACE", help="FILE.jsonl, FILE.parquet, - or an address")
    parser.add_argument("--time", type=moment, metavar="TIME", help="only from then on: 2026-01-31T12:00, 15m (ago)")
    parser.add_argument("--replace", action="store_true", help="write over a file that is there")
    _add_partitions(parser)
    add_broker(parser)
    add_json(parser)
    parser = add_command(
        own,
        "import",
        _import,
        "read topics from a file, or from another broker",
        """
headwater log import orders.jsonl
headwater log import orders.parquet --topic copy --by-key --partitions 8
zcat orders.jsonl.gz | headwater log import - --partitions 4
headwater log import kafka://host:9092 --topic orders --topic payments
headwater log import orders.parquet --bootstrap-server host:9092        # from a file to Kafka
""",
        f"Topics that are not there are made. {_WHAT}",
    )
    parser.add_argument("place", metavar="PLACE", help="FILE.jsonl, FILE.parquet, - or an address")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="TOPIC",
        help="which of a broker's topics; or the one that all records of a file go to (default: the one they name)",
    )
    parser.add_argument("--time", type=moment, metavar="TIME", help="from an address: only from then on")
    _add_partitions(parser)
    add_broker(parser)
    add_json(parser)


def _add_partitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partitions",
        type=count,
        metavar="N",
        help="of a topic that has to be made at a broker (default: as many as it had)",
    )
    parser.add_argument("--by-key", action="store_true", help="at a broker, choose each record's partition anew")


def _export(args: argparse.Namespace) -> int:
    return _move(args, broker(args), args.to, replace=args.replace)


def _import(args: argparse.Namespace) -> int:
    return _move(args, args.place, broker(args), replace=False)


def _move(args: argparse.Namespace, source_place: str, target_place: str, *, replace: bool) -> int:
    from headwater.streams.transfer import BrokerTarget, move, open_source, open_target

    kafka = client_settings(args)
    options = {"partitions": args.partitions, "by_key": args.by_key, "replace": replace}
    with open_source(source_place, args.topics, args.time or "earliest", kafka) as source:
        shown = progress("Moving", source.total, bytes_=source.in_bytes)
        with open_target(target_place, source, kafka, **options) as target, shown as show:
            moved = move(source, target, show)
        if isinstance(target, BrokerTarget):
            moved.renumbered, moved.notes = target.renumbered, target.old_records(moved)
    _tell(args, target_place, moved)
    return 0


def _tell(args: argparse.Namespace, place: str, moved: "Moved") -> None:
    if args.json and place != "-":
        print_json({"to": place, "records": moved.records, "offsets-kept": not moved.renumbered})
    elif place != "-":
        for topic, number in sorted(moved.records.items()):
            print(f"{topic}: {number:,} record{'' if number == 1 else 's'} moved to {place}")
        if not moved.records:
            print("There was nothing to move.")
        if moved.renumbered:
            print("(the records have new offsets there: committed ones of groups do not fit them)")
    for note in moved.notes:
        print(f"headwater: {note}", file=sys.stderr)
