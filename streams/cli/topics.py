"""`headwater topics`: list, create, describe, alter and delete. It owns the options; topics are the Admin's."""

import argparse
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwater.errors import StreamsError
from headwater.streams.cli.options import add_broker, add_command, add_group, add_json, broker, count, duration, size
from headwater.streams.cli.output import duration_text, print_json, print_table, size_text, time_text
from headwater.streams.cli.settings import client_settings

if TYPE_CHECKING:
    from headwater.state.log import TopicInfo
    from headwater.streams.admin import Admin, PartitionDescription
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
headwater topics create orders --broker kafka://host:9092 --replication-factor 3 --config min.insync.replicas=2
headwater topics --create --topic orders --partitions 3 --bootstrap-server host:9092     # as kafka-topics
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
headwater topics alter orders --config max.message.bytes=5000000 --bootstrap-server host:9092
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
        "--replication-factor",
        type=count,
        metavar="N",
        help="how many copies (default: the cluster's choice; the embedded log keeps one)",
    )
    parser.add_argument(
        "--retention",
        type=_retention,
        default=argparse.SUPPRESS,
        metavar="TIME",
        help="how long records are kept: 7d, 12h, forever (default: 7d, Kafka: its choice, with --compact forever)",
    )
    parser.add_argument(
        "--retention-bytes",
        type=_limit,
        default=argparse.SUPPRESS,
        metavar="SIZE",
        help="how much of each partition is kept: 10GB, unlimited (default: unlimited)",
    )
    parser.add_argument("--segment-bytes", type=size, metavar="SIZE", help="when a segment is full (log: 64MiB)")
    parser.add_argument("--segment-age", type=duration, metavar="TIME", help="when a segment is closed (log: 7d)")
    parser.add_argument("--compression", choices=["lz4", "zstd", "none"], help="of batches (log: lz4)")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the topic by Kafka's name, such as retention.ms=-1; may be repeated. Without a = it is a "
        "TOML file of settings, as for other commands",
    )
    add_broker(parser, config=False)
    add_json(parser)


def _retention(text: str) -> timedelta | None:
    return None if text == "forever" else duration(text)


def _limit(text: str) -> int | None:
    return None if text == "unlimited" else size(text)


def _admin(args: argparse.Namespace, *, create: bool = False) -> "Admin":
    from headwater.streams.admin import Admin

    return Admin(broker(args), create=create, kafka=client_settings(args))


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return what was asked for and nothing else: for the retentions None has a meaning of its own."""
    from headwater.streams.broker import is_kafka

    named = dict(one.split("=", 1) for one in args.config if "=" in one)
    args.config = next((one for one in args.config if "=" not in one), None)
    names = {"segment_bytes": "segment_bytes", "segment_age": "segment", "compression": "compression"}
    given = {name: getattr(args, option) for option, name in names.items() if getattr(args, option) is not None}
    for name in ("retention", "retention_bytes"):
        if name in args:
            given[name] = getattr(args, name)
    if is_kafka(broker(args)):
        return given | {"kafka": named}
    return _by_our_names(named) | given


def _by_our_names(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings of a topic by Kafka's names as the log's; the Admin says which it has nothing like."""
    given: dict[str, Any] = {}
    left = dict(settings)
    policy = left.pop("cleanup.policy", None)
    if policy is not None:
        words = {word.strip() for word in policy.split(",")}
        if not words <= {"compact", "delete"}:
            raise StreamsError(f"--config cleanup.policy={policy}: write compact, delete or compact,delete.")
        given["compact"] = "compact" in words
        if words == {"compact", "delete"} and "retention.ms" not in left:
            given["retention"] = timedelta(days=7)
    for name, ours in (("retention.ms", "retention"), ("segment.ms", "segment")):
        if name in left:
            number = _number(name, left.pop(name))
            given[ours] = None if number < 0 else timedelta(milliseconds=number)
    for name, ours in (("retention.bytes", "retention_bytes"), ("segment.bytes", "segment_bytes")):
        if name in left:
            number = _number(name, left.pop(name))
            given[ours] = None if number < 0 else number
    compression = left.pop("compression.type", None)
    if compression is not None and compression != "producer":
        given["compression"] = "none" if compression == "uncompressed" else compression
    return given | ({"kafka": left} if left else {})


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise StreamsError(f"--config {name}={text}: a whole number is needed.") from None


def _cleanup(info: "TopicInfo") -> str:
    return ", ".join(word for word, on in (("compact", info.compact), ("delete", info.delete)) if on) or "nothing"


def _kept(info: "TopicInfo") -> str:
    if not info.delete:
        return "forever"
    limit = size_text(info.retention_bytes)
    return duration_text(info.retention_ms) + (f", {limit} a partition" if limit else "")


def _copies(info: "TopicInfo") -> int | None:
    copies: int | None = getattr(info, "replication_factor", None)
    return copies


def _list(args: argparse.Namespace) -> int:
    infos = _admin(args).topics()
    if args.json:
        print_json(infos)
    else:
        rows = [[info.name, info.partitions, _cleanup(info), _kept(info), _copies(info)] for info in infos]
        head = ["topic", "partitions", "cleanup", "kept", "copies"]
        # The embedded log keeps one copy of everything: nothing to tell.
        width = len(head) if any(row[-1] for row in rows) else len(head) - 1
        print_table(head[:width], [row[:width] for row in rows])
    return 0


def _create(args: argparse.Namespace) -> int:
    settings = _settings(args) | ({"compact": True} if args.compact else {})
    admin = _admin(args, create=True)
    for topic in args.topics:
        admin.create_topic(
            topic,
            args.partitions,
            replication_factor=args.replication_factor,
            exist_ok=args.if_not_exists,
            **settings,
        )
    return _show(args, admin, args.topics, "is there")


def _alter(args: argparse.Namespace) -> int:
    settings = _settings(args) | ({} if args.compact is None else {"compact": args.compact})
    if args.replication_factor not in (None, 1) or (args.replication_factor is not None and "kafka" in settings):
        raise StreamsError(
            f"--replication-factor {args.replication_factor}: how many copies a topic has is not altered here: the "
            "embedded log keeps one copy, and Kafka moves copies with kafka-reassign-partitions."
        )
    if args.partitions is None and not any(settings.values()) and not settings.keys() - {"kafka"}:
        raise StreamsError("There is nothing to alter: give at least one setting (headwater topics alter --help).")
    admin = _admin(args)
    admin.alter_topic(args.topic, partitions=args.partitions, **settings)
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
        copies = _copies(info)
        print(f"  copies       {copies or '1 (the embedded log keeps one copy, on this machine)'}")
        print(f"  cleanup      {_cleanup(info)}")
        print(f"  kept         {_kept(info)}")
        print(f"  segments     {size_text(info.segment_bytes)} or {duration_text(info.segment_ms)}")
        print(f"  compression  {info.compression}")
        _print_partitions(partitions)
    return 0


def _print_partitions(partitions: "Iterable[PartitionDescription]") -> None:
    """A table of what each holds, with what is known of it: its size on the log, its brokers on Kafka."""
    head = ["partition", "start", "end", "size", "segments", "leader", "copies on", "in sync", "last record"]
    rows = [
        [
            *(p.partition, p.start, p.end, size_text(p.size_bytes), p.segments),
            *(getattr(p, "leader", None), _brokers(p, "replicas"), _brokers(p, "in_sync"), time_text(p.last_timestamp)),
        ]
        for p in partitions
    ]
    kept = [at for at, name in enumerate(head) if name == "last record" or any(row[at] is not None for row in rows)]
    print_table([head[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _brokers(partition: "PartitionDescription", which: str) -> str | None:
    numbers = getattr(partition, which, None)
    return None if numbers is None else ", ".join(map(str, numbers))


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
