"""`headwater log`: what lies in the log's files, whether it is sound, and its upkeep; transfer.py moves topics. It owns
the options; the files are the log's."""

import argparse
from typing import TYPE_CHECKING

from headwater.streams.cli.options import add_broker, add_command, add_group, add_json, broker, count
from headwater.streams.cli.output import print_json, progress, time_text
from headwater.streams.cli.settings import client_settings
from headwater.streams.cli.transfer import add as add_transfer

if TYPE_CHECKING:
    from headwater.state.log import BatchInfo, Log, Partition, Record, TopicRepair
    from headwater.streams.admin import Admin
    from headwater.streams.cli.options import Commands

__all__ = ["add"]


def add(commands: "Commands") -> None:
    """Declare the commands."""
    own = add_group(commands, "log", "move topics, and look into the embedded log's files and after them")
    add_transfer(own)
    parser = add_command(
        own,
        "dump",
        _dump,
        "list the batches of a topic, as their headers describe them",
        "headwater log dump orders --partition 0 --records\nheadwater log dump orders --json | jq .count",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", type=count, metavar="N", help="only this one")
    parser.add_argument("--records", action="store_true", help="show the records in each batch as well")
    add_broker(parser)
    add_json(parser, "print each batch as a line of JSON")
    parser = add_command(
        own,
        "verify",
        _verify,
        "read every batch and report what is damaged; exit code 1 if anything is",
        "headwater log verify\nheadwater log verify orders payments --json",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="which (default: all)")
    add_broker(parser)
    add_json(parser)
    parser = add_command(
        own,
        "repair",
        _repair,
        "show what is damaged in a topic and what making it whole gives up; with --yes, do it",
        "headwater log repair orders\nheadwater log repair orders-0 --yes",
        "Sound records stay, under their offsets. Nothing is changed without --yes; stop the applications that use the "
        "topic\nfirst. If there is a copy of the damaged files, put that back instead.",
    )
    parser.add_argument("topic", metavar="TOPIC[-PARTITION]")
    parser.add_argument("-y", "--yes", action="store_true", help="do it")
    add_broker(parser)
    add_json(parser)
    parser = add_command(
        own,
        "maintain",
        _maintain,
        "delete and compact now what the topics' settings say",
        "headwater log maintain\n0 * * * * headwater log maintain --broker log:///var/lib/headwater    # in a crontab",
        "A running application does this by itself.",
    )
    add_broker(parser)
    add_json(parser)
    parser = add_command(
        own,
        "delete-records",
        _delete_records,
        "delete the records of a partition below an offset, for good",
        "headwater log delete-records orders --partition 0 --before 1200",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partition", type=count, required=True, metavar="N")
    parser.add_argument("--before", type=count, required=True, metavar="OFFSET", help="the first offset to keep")
    add_broker(parser)
    add_json(parser)


def _open(args: argparse.Namespace) -> "Log":
    from headwater.streams.broker import open_log

    return open_log(broker(args), create=False)


def _dump(args: argparse.Namespace) -> int:
    log = _open(args)
    info = log.topic(args.topic)
    for number in range(info.partitions) if args.partition is None else [args.partition]:
        with log.partition(args.topic, number) as partition:
            if not args.json:
                print(f"{partition}: offsets {partition.start} up to but not including {partition.end}")
            for batch in partition.dump():
                _print_batch(args, partition, batch)
    return 0


def _print_batch(args: argparse.Namespace, partition: "Partition", batch: "BatchInfo") -> None:
    import msgspec

    if args.json:
        fields: dict[str, object] = {"topic": partition.topic, "partition": partition.number}
        fields |= msgspec.to_builtins(batch)
        if args.records:
            # Bytes become base64 there: a dump is about what is stored, not about what it means.
            fields["records"] = _records(partition, batch)
        print_json(fields)
        return
    times = [time_text(batch.min_timestamp), time_text(batch.max_timestamp)]
    number = "" if batch.sequence is None else f" #{batch.sequence}"
    producer = "" if batch.producer is None else f"  by {batch.producer}{number}"
    print(
        f"  {batch.base}..{batch.last}  {batch.count} record{'' if batch.count == 1 else 's'}  "
        f"{batch.size} bytes ({batch.compression}, {batch.raw_size} raw)  {times[0]} .. {times[1]}"
        f"{producer}  {batch.file}@{batch.position}"
    )
    for record in _records(partition, batch) if args.records else ():
        key, value, timestamp, headers, offset = record
        print(f"    {offset}  {time_text(timestamp)}  {key!r}  {value!r}{f'  {headers!r}' if headers else ''}")


def _records(partition: "Partition", batch: "BatchInfo") -> "list[Record]":
    first = max(batch.base, partition.start)
    if first > batch.last:
        return []
    return [record for record in partition.read(first, max_records=batch.count) if record[4] <= batch.last]


def _verify(args: argparse.Namespace) -> int:
    log = _open(args)
    infos = [log.topic(name) for name in args.topics] or log.topics()
    places = [(info.name, number) for info in infos for number in range(info.partitions)]
    faults: list[tuple[str, int, str]] = []
    with progress("Reading", len(places)) as show:
        for done, (topic, number) in enumerate(places, 1):
            with log.partition(topic, number) as partition:
                faults += [(topic, number, fault) for fault in partition.verify()]
            show(done)
    if args.json:
        listed = [{"topic": topic, "partition": number, "fault": fault} for topic, number, fault in faults]
        print_json({"partitions": len(places), "faults": listed})
    else:
        for *_, fault in faults:
            print(fault)
        print(f"partitions read: {len(places)}; faults: {len(faults) or 'none'}")
    return 1 if faults else 0


def _repair(args: argparse.Namespace) -> int:
    log = _open(args)
    topic, _, number = args.topic.rpartition("-")
    if (log.directory / "topics" / args.topic).is_dir() or not topic or not number.isdigit():
        topic, numbers = args.topic, None
    else:
        numbers = [int(number)]
    found = log.repair_topic(topic, numbers, execute=args.yes)
    if args.json:
        print_json({**_repair_fields(found), "done": args.yes and not found.sound})
        return 0
    for mend in found.mends:
        print(f"{topic}: {mend}")
    for one in found.partitions:
        name = f"{topic}-{one.number}"
        for mend in one.mends:
            print(f"{name}: {mend}")
        for loss in one.losses:
            lost = f"offsets {loss.first} to {loss.end - 1}" if loss.end > loss.first else "no offset that is known"
            print(f"{name}: {lost} lost: {loss.size:,} bytes at byte {loss.position:,} of {loss.file}")
        if one.losses or one.mends:
            print(f"{name}: {one.lost_offsets:,} offsets lost in all; the next record gets {one.end}")
    if found.sound:
        print(f"{topic}: nothing to repair")
    else:
        done = "done; damaged files are kept beside, as .damaged" if args.yes else "nothing was changed: --yes does it"
        print(f"({done})")
    return 0


def _repair_fields(found: "TopicRepair") -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(found)
    return fields


def _maintain(args: argparse.Namespace) -> int:
    from headwater.streams.admin import Admin

    admin = Admin(broker(args), create=False)
    before = _bytes(admin)
    admin.maintain()
    freed = before - _bytes(admin)
    if args.json:
        print_json({"freed_bytes": freed})
    else:
        print(f"{max(0, freed):,} bytes freed")
    return 0


def _bytes(admin: "Admin") -> int:
    return sum(one.size_bytes or 0 for info in admin.topics() for one in admin.describe(info.name).partitions)


def _delete_records(args: argparse.Namespace) -> int:
    from headwater.streams.admin import Admin

    admin = Admin(broker(args), create=False, kafka=client_settings(args))
    admin.delete_records(args.topic, args.partition, args.before)
    start = admin.describe(args.topic).partitions[args.partition].start
    if args.json:
        print_json({"topic": args.topic, "partition": args.partition, "start": start})
    else:
        print(f"{args.topic}-{args.partition} begins now at {start}")
    return 0
