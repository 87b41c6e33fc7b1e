"""Where Headwater differs from Kafka Streams on purpose, and what `Config(compat="kafka-streams")` does about it. It
owns the list, which decision 008 shows, what a task forgets at a restart, and what is refused before anything runs; the
operators look at the setting themselves.

`python -m headwater.streams.compat` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.dsl.ops import SessionAggregate
from headwater.dsl.topology import ProcessorNode, Topology
from headwater.errors import TopologyError
from headwater.streams.set_back import LEAPT, SET_BACK

__all__ = ["DIFFERENCES", "Difference", "check", "remembered_by_kafka_streams", "table"]


@dataclass(frozen=True)
class Difference:
    """One deliberate difference; `compat` is what the setting does, None where no output can change."""

    name: str
    kafka_streams: str
    headwater: str
    compat: str | None


DIFFERENCES = (
    Difference(
        "operator memory",
        "A restart forgets the times that operators and stores have observed, join minTime, emit throttles, schedules "
        "and fields of processors. It keeps rows, partition times and up to where closed windows were emitted.",
        "All of it survives a restart, so that no restart changes an answer.",
        "A task that is opened again forgets what Kafka Streams forgets, with its local state in place.",
    ),
    Difference(
        "backfills over several partitions",
        "A thread works off what it has fetched, partition after partition. So behind a repartition records of a "
        "backfill are late by as much as was fetched at once, and windows and joins drop them.",
        "While they are behind, the tasks of a worker advance together in event time (decision 013), and on Spark what "
        "a repartition brings is merged by time.",
        "The tasks of a worker do not wait for each other, and what they write is not merged. On Spark nothing "
        "changes.",
    ),
    Difference(
        "mutating aggregators",
        "An aggregator that changes its argument changes the old value that is sent on, and in sliding windows what a "
        "new right window starts from: they are one object. Old values out of the record cache are read again.",
        "The old value is what was stored, whatever a function does to its arguments.",
        "The same object is handed on.",
    ),
    Difference(
        "grace join without a key",
        "A left stream-table join with grace throws a NullPointerException at a stream record with a null key.",
        "It is joined with nothing at once.",
        "It is an error of the step, which `on_processing_error` is asked about.",
    ),
    Difference(
        "grace join that raises",
        "A waiting record whose joiner raises stays in the buffer when the handler goes on: it fails again with every "
        "later record, and those behind it wait for ever.",
        "That waiting record alone is lost.",
        "It stays, and the handler is asked about the record that has just come.",
    ),
    Difference(
        "sliding windows of 0",
        "Every record that is not late throws an IllegalArgumentException.",
        "A window holds the records of one moment.",
        "It is an error of the step, which `on_processing_error` is asked about.",
    ),
    Difference(
        "sessions with a gap of 0",
        "They are refused with an IllegalArgumentException.",
        "A session holds the records of one moment.",
        "The topology is refused before it starts.",
    ),
    Difference(
        "windows of a user's own class",
        "`Windows` can be extended. Their ends are read back from store and topic as start + `size()`, so that a day "
        "of 23 hours has two ends.",
        "They are refused when the topology is built; the message says how to have such stretches in the key instead.",
        None,
    ),
    Difference(
        "serdes of stream-stream joins",
        "Join windows and the result's key have the serdes given with the join, else the defaults; one that does not "
        "fit throws a ClassCastException at the first record.",
        "They have those given with the join, else the streams' own, else the defaults.",
        "A join whose streams have other serdes than the defaults must be given them (key=, value=, other_value=), "
        "else the topology is refused before it starts.",
    ),
    Difference(
        "groups of bytes",
        "`KTable.groupBy` compares keys by `equals`, and so arrays of bytes by identity: an update within a group is "
        "sent as a removal and an addition.",
        "Equal bytes are one group, and an update within it is one update.",
        "No two keys of bytes are the same group.",
    ),
    Difference(
        "sinks that raise",
        "A topic extractor or partitioner that throws fails the step before the sink: under a handler that goes on, "
        "its later children miss the record too. Behind a source it fails the task, whatever the handler says.",
        'Under "skip" the record is lost for that sink only.',
        "It fails the step before the sink, or the task.",
    ),
    Difference(
        "headers",
        "Headers can be changed in place, and siblings see it.",
        "Headers are immutable: a header added downstream is not seen by siblings.",
        None,
    ),
)


def table() -> str:
    """The differences as a Markdown table.

    >>> print(table().splitlines()[0])
    | difference | Kafka Streams 4.3.1 | Headwater | with `compat="kafka-streams"` |
    """
    rows = [
        (entry.name, entry.kafka_streams, entry.headwater, entry.compat or "No output can change: nothing to do.")
        for entry in DIFFERENCES
    ]
    head = ("difference", "Kafka Streams 4.3.1", "Headwater", 'with `compat="kafka-streams"`')
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))


def check(topology: Topology) -> None:
    """Refuse what Kafka Streams could not run."""
    faults = list(topology.inherited_serdes)
    faults += [
        f"step {node.name!r} has sessions with a gap of 0 ms, which Kafka Streams refuses: give them a longer gap"
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and isinstance(node.op, SessionAggregate) and not node.op.windows.gap_ms
    ]
    if faults:
        raise TopologyError([f'{fault} (compat="kafka-streams")' for fault in faults])


def remembered_by_kafka_streams(
    memories: Mapping[str, dict[str, Any]], closing: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """What of a task's memories Kafka Streams would know after a restart: what it keeps with committed offsets.

    `closing` are the names of the memories of steps that emit on close.

    >>> memories = {"step of s": {"observed": 9, "closed": 4}, "times": {"stream": 9, "partitions": {("in", 0): 7}}}
    >>> remembered_by_kafka_streams(memories, ["step of s"])
    {'step of s': {'closed': 4}, 'times': {'stream': 7, 'partitions': {('in', 0): 7}}}
    """
    found: dict[str, dict[str, Any]] = {}
    for name in closing:
        if "closed" in memories.get(name, {}):
            found[name] = {"closed": memories[name]["closed"]}
    if "times" in memories:
        partitions = memories["times"]["partitions"]
        found["times"] = {"stream": max(partitions.values(), default=-1), "partitions": partitions}
    return found | {name: memories[name] for name in (SET_BACK, LEAPT) if name in memories}


if __name__ == "__main__":
    print(table())
