"""`headwater groups`: list, describe, reset-offsets and delete. It owns the options; groups are the Admin's."""

import argparse
from typing import TYPE_CHECKING, Literal

from headwater.streams.cli.options import add_broker, add_command, add_group, add_json, broker, count, moment
from headwater.streams.cli.output import print_json, print_table
from headwater.streams.cli.settings import client_settings

if TYPE_CHECKING:
    from datetime import datetime

    from headwater.streams.admin import Admin
    from headwater.streams.cli.options import Commands

__all__ = ["add"]


def add(commands: "Commands") -> None:
    """Declare the commands."""
    own = add_group(commands, "groups", "list, describe, reset and delete consumer groups")
    parser = add_command(own, "list", _list, "list the groups", "headwater groups list\nheadwater groups list --json")
    add_broker(parser)
    add_json(parser)
    parser = add_command(
        own,
        "describe",
        _describe,
        "show members, committed offsets and lag of groups",
        """
headwater groups describe kitchen
headwater groups describe kitchen --json | jq '.[0].offsets[].lag'
headwater groups --describe --group kitchen --bootstrap-server host:9092     # as kafka-consumer-groups
""",
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="which (default: all)")
    add_broker(parser)
    add_json(parser)
    _add_reset(own)
    parser = add_command(
        own, "delete", _delete, "delete groups and what they have committed", "headwater groups delete kitchen"
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    add_broker(parser)
    add_json(parser)


def _add_reset(own: "Commands") -> None:
    parser = add_command(
        own,
        "reset-offsets",
        _reset,
        "set where a group reads next",
        """
headwater groups reset-offsets kitchen --to-earliest
headwater groups reset-offsets kitchen --to-time 1h --topic orders --dry-run
headwater groups reset-offsets kitchen --to-offset 1200 --topic orders --partition 0
headwater groups --reset-offsets --group kitchen --topic orders:0 --to-offset 1200 --execute \\
    --bootstrap-server host:9092                             # as kafka-consumer-groups
""",
        "Refused while the group has live members.",
    )
    parser.add_argument("group", metavar="GROUP")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="to the oldest record")
    target.add_argument("--to-latest", action="store_true", help="behind the newest record")
    target.add_argument("--to-offset", type=count, metavar="N", help="to this offset, or the nearest there is")
    target.add_argument(
        "--to-time", type=moment, metavar="TIME", help="to the first record from then: 2026-01-31T12:00, 15m (ago)"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="TOPIC",
        help="only this one; may be repeated (default: all the group has committed for)",
    )
    parser.add_argument(
        "--partition", type=count, action="append", metavar="N", dest="partitions", help="only this; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing, only show what would change")
    add_broker(parser)
    add_json(parser)


def _admin(args: argparse.Namespace) -> "Admin":
    from headwater.streams.admin import Admin

    return Admin(broker(args), create=False, kafka=client_settings(args))


def _list(args: argparse.Namespace) -> int:
    admin = _admin(args)
    described = [admin.describe_group(name) for name in admin.groups()]
    rows = [(one.name, len(one.members), sum(offset.lag or 0 for offset in one.offsets)) for one in described]
    if args.json:
        print_json([{"group": name, "members": members, "lag": lag} for name, members, lag in rows])
    else:
        print_table(["group", "members", "lag"], rows)
    return 0


def _describe(args: argparse.Namespace) -> int:
    admin = _admin(args)
    described = [admin.describe_group(name) for name in args.groups or admin.groups()]
    if args.json:
        print_json(
            [
                {
                    "group": one.name,
                    "members": one.members,
                    "offsets": [
                        {name: getattr(offset, name) for name in (*offset.__struct_fields__, "lag")}
                        for offset in one.offsets
                    ],
                }
                for one in described
            ]
        )
        return 0
    for number, one in enumerate(described):
        print("\n" * bool(number) + one.name + ("" if one.members else " (no live members)"))
        if one.members:
            print_table(["member", "owns"], [[member.name, ", ".join(member.owns) or None] for member in one.members])
        if one.offsets:
            print_table(
                ["topic", "partition", "committed", "end", "lag", "owner"],
                [[at.topic, at.partition, at.committed, at.end, at.lag, at.owner] for at in one.offsets],
            )
    return 0


def _target(args: argparse.Namespace) -> "Literal['earliest', 'latest'] | int | datetime":
    if args.to_earliest:
        return "earliest"
    if args.to_latest:
        return "latest"
    target: int | datetime = args.to_time if args.to_offset is None else args.to_offset
    return target


def _reset(args: argparse.Namespace) -> int:
    changes = _admin(args).reset_offsets(
        args.group, _target(args), args.topics, partitions=args.partitions, dry_run=args.dry_run
    )
    rows = [[topic, partition, before, after] for (topic, partition), (before, after) in changes.items()]
    head = ["topic", "partition", "before", "after"]
    if args.json:
        print_json([dict(zip(head, row, strict=True)) for row in rows])
    else:
        print_table(head, rows)
        if args.dry_run:
            print("(nothing was changed: --dry-run)")
    return 0


def _delete(args: argparse.Namespace) -> int:
    admin = _admin(args)
    for group in args.groups:
        admin.delete_group(group)
    if args.json:
        print_json({"deleted": args.groups})
    else:
        for group in args.groups:
            print(f"{group} is deleted")
    return 0
