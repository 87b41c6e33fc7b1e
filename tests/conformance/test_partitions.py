"""Topics with four partitions, inputs spread by murmur2 of the key and sent one by one: keyed aggregations end as with
one partition; what needs no repartitioning is four applications side by side; and where only a key's own records
decide, a repartition changes nothing for it."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headwater import Str
from headwater.dsl.partitioner import partition_for
from tests.conformance.driver import DriverPlayer
from tests.conformance.replay import TRACES, Contents, Observed, Step, Trace, build, load_trace, row_order, trace_files

PARTITIONS = 4
KEYED_STORES = ("kv", "plain_kv")

# A step is an aggregation if it keeps its result in a store: the name says the operator, the store's kind "unwindowed".
AGGREGATION = re.compile(r"Processor: \S*(?:AGGREGATE|REDUCE)-\d+ \(stores: \[(?P<store>\S+)\]\)")

# Aggregations of the traces that may end otherwise with four partitions, and why.
ENDS_OTHERWISE = {
    "versioned-table-aggregate": "its source table forgets by stream time, and each partition has its own",
}


def partition_of(key: Any) -> int:
    """Return the partition of a key: a windowed one goes where its key goes."""
    return partition_for(Str().encode(key["key"] if isinstance(key, dict) else key), PARTITIONS)


def input_partition(number: int, given: dict[str, Any]) -> int:
    """Return the partition of an input: that of its key; without one, by turns."""
    return number % PARTITIONS if given["key"] is None else partition_of(given["key"])


def play(player: DriverPlayer, number: int, step: Step) -> Observed:
    """Take a step over four partitions; the driver itself finds a key's partition, a null key is told one."""
    null_key = "in" in step and step["in"]["key"] is None
    return player.play(step, partition=number % PARTITIONS if null_key else None)


# (a) Unwindowed keyed aggregations


def aggregates(trace: Trace) -> bool:
    """Whether a trace has an unwindowed aggregation.

    A key's records then lie in one partition, before the aggregation also of a repartition topic, and keep their
    order, since each input is processed wholly before the next: even a text that shows the order is the same.
    The record cache changes what is emitted, not what is stored, and null keys are aggregated nowhere.
    """
    kinds = trace.body["store_kinds"]
    return any(kinds.get(found["store"]) == "kv" for found in AGGREGATION.finditer(trace.body["describe"]))


AGGREGATIONS = [path for path in trace_files() if aggregates(load_trace(path))]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=f"driver-{PARTITIONS}-partitions-{path.stem}")
        for path in AGGREGATIONS
        if load_trace(path).topology not in ENDS_OTHERWISE
    ],
)
def test_keyed_aggregations_end_with_the_stores_of_the_trace(path: Path) -> None:
    trace = load_trace(path)
    topology, case = build(trace)
    with DriverPlayer(trace, topology, case, partitions=PARTITIONS) as player:
        for number, step in enumerate(trace.steps):
            assert play(player, number, step).error is None, f"{trace.name}: step {number}: {step}"
        contents = player.contents(trace)
    keyed = [name for name, kind in trace.body["store_kinds"].items() if kind in KEYED_STORES]
    assert keyed
    assert {name: contents.rows[name] for name in keyed} == {name: trace.body["stores"][name] for name in keyed}
    assert {name: contents.timestamps[name] for name in keyed} == {name: trace.body["store_ts"][name] for name in keyed}


# (b) Four applications side by side


def repartitions(trace: Trace) -> bool:
    """Whether records go to other tasks through internal topics."""
    return re.search(r"topic: \S+-(repartition|topic)\)", trace.body["describe"]) is not None


def reads_what_it_writes(trace: Trace) -> bool:
    return any(topic["role"] == "source+sink" for topic in trace.body["topics"].values())


def as_in_partition(trace: Trace, observed: Observed, partition: int) -> list[dict[str, Any]]:
    """Return a one-partition driver's output as the application of another partition would write it."""
    if trace.topology != "process-headers-and-metadata":
        return observed.out
    # The only topology that shows the partition's number: topic/partition/offset/…
    return [record | {"value": record["value"].replace("in/0/", f"in/{partition}/", 1)} for record in observed.out]


def by_partition(records: Iterable[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    """Group output by topic and partition, in order; null keys may lie anywhere and have a group of their own."""
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        record = dict(record)
        partition = record.pop("partition", None)
        if record["key"] is None:
            place = None
        else:
            place = partition_of(record["key"]) if partition is None else partition
        groups[record["topic"], place].append(record)
    return groups


def in_no_order(groups: dict[Any, list[dict[str, Any]]]) -> dict[Any, list[dict[str, Any]]]:
    return {place: sorted(records, key=json.dumps) for place, records in groups.items()}


def side_by_side(trace: Trace, contents: list[Contents]) -> Contents:
    """Put the stores of four applications together; a global store is the same in each."""
    rows, timestamps = {}, {}
    global_stores = set()
    if trace.global_topics:
        _, _, described = trace.body["describe"].partition("for global store")
        global_stores = set(re.findall(r"\(stores: \[(\S+)\]\)", described))
    for name in trace.body["stores"]:
        parts = contents[:1] if name in global_stores else contents
        together = sorted(
            (
                (key, value, timestamp)
                for part in parts
                for (key, value), timestamp in zip(part.rows[name], part.timestamps[name], strict=True)
            ),
            key=row_order,
        )
        rows[name] = [[key, value] for key, value, _ in together]
        timestamps[name] = [timestamp for _, _, timestamp in together]
    versions = {
        name: [contents[partition_of(probe["key"])].versions[name][at] for at, probe in enumerate(probes)]
        for name, probes in trace.body.get("store_versions", {}).items()
    }
    return Contents(rows, timestamps, versions)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=f"driver-{PARTITIONS}-partitions-{path.stem}")
        for path in trace_files()
        if not repartitions(load_trace(path))
    ],
)
def test_without_a_repartition_each_partition_is_an_application_of_its_own(path: Path) -> None:
    trace = load_trace(path)
    with ExitStack() as opened:
        four = opened.enter_context(DriverPlayer(trace, *build(trace), partitions=PARTITIONS))
        ones = [opened.enter_context(DriverPlayer(trace, *build(trace))) for _ in range(PARTITIONS)]
        for number, step in enumerate(trace.steps):
            where = f"{trace.name}: step {number}: {step.get('in', step)}"
            given = step.get("in")
            if given and given["key"] is None and reads_what_it_writes(trace):
                continue  # the topic in between puts a null key into any partition
            if given and given["topic"] not in trace.global_topics:
                players = [input_partition(number, given)]
            else:
                players = list(range(PARTITIONS))
            expected = {partition: ones[partition].play(step) for partition in players}
            got = play(four, number, step)
            out = [record for p, observed in expected.items() for record in as_in_partition(trace, observed, p)]
            effects = [effect for observed in expected.values() for effect in observed.effects]
            groups = by_partition(out), by_partition(got.out)
            if len(players) > 1:
                # Between tasks there is no order.
                groups = in_no_order(groups[0]), in_no_order(groups[1])
                effects.sort()
                got.effects.sort()
            assert groups[1] == groups[0], where
            assert got.effects == effects, where
            drops = [observed.dropped for observed in expected.values()]
            assert got.dropped == (drops[0] if given else sum(drops)), where
            assert bool(got.error) == any(observed.error for observed in expected.values()), where
            if got.error:
                return
        assert four.contents(trace) == side_by_side(trace, [one.contents(trace) for one in ones])


# (c) Repartitioned, and decided by each key's own records


def time_decides(trace: Trace) -> bool:
    """Whether stream time decides what comes out: it is the partition's own, so that four know less than one."""
    kinds = trace.body["store_kinds"]
    return any(
        kinds.get(name) not in KEYED_STORES and not name.endswith("-subscription-store")
        for name in trace.body["all_store_names"]
    )


def by_key(records: Iterable[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    """Group output by topic and key, in order."""
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["topic"], record["key"]].append(
            {name: part for name, part in record.items() if name != "partition"}
        )
    return groups


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=f"driver-{PARTITIONS}-partitions-{path.stem}")
        for path in trace_files()
        if repartitions(trace := load_trace(path)) and not time_decides(trace)
    ],
)
def test_after_a_repartition_each_key_has_the_output_of_the_trace(path: Path) -> None:
    trace = load_trace(path)
    topology, case = build(trace)
    with DriverPlayer(trace, topology, case, partitions=PARTITIONS) as player:
        for number, step in enumerate(trace.steps):
            got = play(player, number, step)
            where = f"{trace.name}: step {number}: {step.get('in', step)}"
            assert by_key(got.out) == by_key(step["out"]), where
            assert got.dropped == step.get("dropped", 0), where
            strayed = [
                record
                for record in got.out
                if record["key"] is not None and record["partition"] != partition_of(record["key"])
            ]
            assert not strayed, where
        contents = player.contents(trace)
    assert contents.rows == trace.body["stores"]
    assert contents.timestamps == trace.body["store_ts"]


@pytest.mark.parametrize("topology", ENDS_OTHERWISE)
def test_what_is_left_out_is_an_aggregation(topology: str) -> None:
    assert aggregates(load_trace(TRACES / f"{topology}.1.json"))
