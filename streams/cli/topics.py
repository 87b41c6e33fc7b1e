"""`headwater topics`: list, create, describe, alter and delete. It owns the options; topics are the Admin's."""

import argparse
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwater.errors import StreamsError
from headwater.streams.cli.options import add_broker, add_command, add_group, add_json, broker, count, duration, size
from headwater.streams.cli.output import duration_text, print_json, print_table, size_text, time_text

if TYPE_CHECKING:
    from headwater.state.log import TopicInfo
    from headwater.streams.admin import Admin
    from headwater.streams.cli.options import Commands

__all__ = ["add"]


def add(commands: "Commands") -> None:
    """Declare the commands."""
    own = add_group(commands, "topics", "list, create, describe, alter and delete topics")
    parser = add_command(
        own, "list", _list, "list the topics", "headwater topics list\nheadwater topics list --json | jq -r '.[].name'"
    )
    add_broker(parser)
    add_json(parser)
    _add_create(own)
    parser = add_command(
        own,
        "describe",
        _describe,
        "show settings and partitions of topics",
        "headwater topics describe orders\nheadwater topics describe --json",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="which (default: all)")
    add_broker(parser)
    add_json(parser)
    _add_alter(own)
    parser = add_command(
        own,
        "delete",
        _delete,
        "delete topics with all their records",
        "headwater topics delete orders\nheadwater topics delete old-orders older-orders --if-exists",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-exists", action="store_true", help="pass over a topic that is not there")
    add_broker(parser)
    add_json(parser)


def _add_create(own: "Commands") -> None:
    parser = add_command(
        own,
        "create",
        _create,
        "create topics",
        """
headwater topics create orders
headwater topics create orders payments --partitions 4 --retention 30d
headwater topics create customers --compact           # the last record of each key, for ever
headwater topics create clicks --retention-bytes 10GB --compression zstd
""",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--partitions", type=count, default=1, metavar="N", help="how many partitions (default: 1)")
    parser.add_argument("--if-not-exists", action="store_true", help="leave a topic that is there as it is")
    parser.add_argument("--compact", action="store_true", help="keep the last record of each key")
    _add_settings(parser)


def _add_alter(own: "Commands") -> None:
    parser = add_command(
        own,
        "alter",
        _alter,
        "change settings of a topic",
        """
headwater topics alter orders --retention 30d
headwater topics alter orders --partitions 8          # they may only grow
headwater topics alter customers --compact --retention forever
""",
        "Records that are there stay where they are: with more partitions, a key's new records may go to another one.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partitions", type=count, metavar="N", help="how many partitions; they may only grow")
    parser.add_argument(
        "--compact", action=argparse.BooleanOptionalAction, help="keep the last record of each key, or no longer"
    )
    _add_settings(parser)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replication-factor", type=count, metavar="N", help="accepted if 1: the embedded log keeps one copy"
    )
    parser.add_argument(
        "--retention",
        type=_retention,
        default=argparse.SUPPRESS,
        metavar="TIME",
        help="how long records are kept: 7d, 12h, forever (default: 7d, with --compact forever)",
    )
    parser.add_argument(
        "--retention-bytes",
        type=_limit,
        default=argparse.SUPPRESS,
        metavar="SIZE",
        help="how much of each partition is kept: 10GB, unlimited (default: unlimited)",
    )
    parser.add_argument("--segment-bytes", type=size, metavar="SIZE", help="when a segment is full (default: 64MiB)")
    parser.add_argument("--segment-age", type=duration, metavar="TIME", help="when a segment is closed (default: 7d)")
    parser.add_argument("--compression", choices=["lz4", "zstd", "none"], help="of batches (default: lz4)")
    add_broker(parser)
    add_json(parser)


def _retention(text: str) -> timedelta | None:
    return None if text == "forever" else duration(text)


def _limit(text: str) -> int | None:
    return None if text == "unlimited" else size(text)


def _admin(args: argparse.Namespace, *, create: bool = False) -> "Admin":
    from headwater.streams.admin import Admin

    return Admin(broker(args), create=create)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return what was asked for and nothing else: for the retentions None has a meaning of its own."""
    if args.replication_factor not in (None, 1):
        raise StreamsError(
            f"--replication-factor {args.replication_factor}: the embedded log keeps one copy of each record, on this "
            "machine. Leave it out or give 1; for more copies, copy the directory or take Kafka."
        )
    names = {"segment_bytes": "segment_bytes", "segment_age": "segment", "compression": "compression"}
    given = {name: getattr(args, option) for option, name in names.items() if getattr(args, option) is not None}
    for name in ("retention", "retention_bytes"):
        if name in args:
            given[name] = getattr(args, name)
    return given


def _cleanup(info: "TopicInfo") -> str:
    return ", ".join(word for word, on in (("compact", info.compact), ("delete", info.delete)) if on) or "nothing"


def _kept(info: "TopicInfo") -> str:
    if not info.delete:
        return "forever"
    limit = size_text(info.retention_bytes)
    return duration_text(info.retention_ms) + (f", {limit} a partition" if limit else "")


def _list(args: argparse.Namespace) -> int:
    infos = _admin(args).topics()
    if args.json:
        print_json(infos)
    else:
        rows = [[info.name, info.partitions, _cleanup(info), _kept(info)] for info in infos]
        print_table(["topic", "partitions", "cleanup", "kept"], rows)
    return 0


def _create(args: argparse.Namespace) -> int:
    settings = _settings(args)
    admin = _admin(args, create=True)
    for topic in args.topics:
        admin.create_topic(topic, args.partitions, compact=args.compact, exist_ok=args.if_not_exists, **settings)
    return _show(args, admin, args.topics, "is there")


def _alter(args: argparse.Namespace) -> int:
    settings = _settings(args)
    if args.partitions is None and args.compact is None and not settings:
        raise StreamsError("There is nothing to alter: give at least one setting (headwater topics alter --help).")
    admin = _admin(args)
    admin.alter_topic(args.topic, partitions=args.partitions, compact=args.compact, **settings)
    return _show(args, admin, [args.topic], "has now")


def _show(args: argparse.Namespace, admin: "Admin", topics: list[str], verb: str) -> int:
    infos = [admin.describe(topic).info for topic in topics]
    if args.json:
        print_json(infos)
    else:
        for info in infos:
            partitions = "1 partition" if info.partitions == 1 else f"{info.partitions} partitions"
            print(f"{info.name} {verb}: {partitions}, cleanup by {_cleanup(info)}, kept {_kept(info)}")
    return 0


def _describe(args: argparse.Namespace) -> int:
    admin = _admin(args)
    described = [admin.describe(topic) for topic in args.topics or [info.name for info in admin.topics()]]
    if args.json:
        print_json(described)
        return 0
    for number, (info, partitions) in enumerate((one.info, one.partitions) for one in described):
        print("\n" * bool(number) + info.name)
        print("  copies       1 (the embedded log keeps one copy, on this machine)")
        print(f"  cleanup      {_cleanup(info)}")
        print(f"  kept         {_kept(info)}")
        print(f"  segments     {size_text(info.segment_bytes)} or {duration_text(info.segment_ms)}")
        print(f"  compression  {info.compression}")
        rows = [
            (p.partition, p.start, p.end, size_text(p.size_bytes), p.segments, time_text(p.last_timestamp))
            for p in partitions
        ]
        print_table(["partition", "start", "end", "size", "segments", "last record"], rows)
    return 0


def _delete(args: argparse.Namespace) -> int:
    from headwater.state.log import UnknownTopic

    admin = _admin(args)
    deleted = []
    for topic in args.topics:
        try:
            admin.delete_topic(topic)
        except UnknownTopic:
            if not args.if_exists:
                raise
        else:
            deleted.append(topic)
    if args.json:
        print_json({"deleted": deleted})
    else:
        for topic in deleted:
            print(f"{topic} is deleted")
    return 0
