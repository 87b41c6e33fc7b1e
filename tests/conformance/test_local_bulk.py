"""Seed 1 of every topology with one input and no repartition, all records at once: two workers on four partitions of
the embedded log put out, key by key, what the driver with four partitions does, and end with the same stores.

Null keys are left out, since a producer may put them anywhere, and so are advances of the wall clock, which have no
place among records that are there at once.
"""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater import Record, StreamsError, Topology
from headwater.dsl.partitioner import partition_for
from headwater.state.log import Log
from headwater.streams.app import App
from headwater.streams.fleet import Fleet
from headwater.streams.log_connection import LogConnection
from headwater.streams.worker import READ, Clock, Worker
from tests.conformance.case import Case
from tests.conformance.driver import DriverPlayer, store_contents
from tests.conformance.local import ManualClock, config_of
from tests.conformance.replay import (
    Contents,
    Step,
    Trace,
    build,
    input_headers,
    load_trace,
    raw_value,
    row_order,
    trace_files,
    written_record,
)
from tests.conformance.test_partitions import PARTITIONS, repartitions

WORKERS = 2
PATIENCE = 60.0
# Some with real processes, where the wall clock decides nothing.
IN_PROCESSES = ("group-by-key-count", "hopping-aggregate", "process-headers-and-metadata", "table-chain")

New = tuple[bytes, bytes | None, int, Any]


def in_bulk(trace: Trace) -> bool:
    return len(trace.sources) == 1 and not repartitions(trace)


BULK = [path for path in trace_files() if path.stem.endswith(".1") and in_bulk(load_trace(path))]


def encoded(trace: Trace, step: Step) -> New:
    """An input as bytes."""
    given = step["in"]
    key_serde, value_serde = trace.serdes(given["topic"])
    value = raw_value(given)
    if value is None and given["value"] is not None:
        value = value_serde.encode(given["value"])
    return key_serde.encode(given["key"]), value, given["ts"], input_headers(given)


def keyed_inputs(trace: Trace) -> list[Step]:
    return [step for step in trace.steps if "in" in step and step["in"]["key"] is not None]


# What the driver says

Place = tuple[str, str]  # a topic, and a key as JSON


def place_of(record: dict[str, Any]) -> Place:
    return record["topic"], json.dumps(record["key"])


@dataclass
class Expected:
    """The driver's output of each key, apart for each input partition that it came from; its effects and its stores."""

    out: defaultdict[Place, dict[int, list[dict[str, Any]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    effects: Counter[str] = field(default_factory=Counter)
    contents: Contents | None = None
    refused: Step | None = None  # the input that the topology fails at


def drive(trace: Trace) -> Expected:
    expected = Expected()
    with DriverPlayer(trace, *build(trace), partitions=PARTITIONS) as player:
        for step in keyed_inputs(trace):
            observed = player.play(step)
            if observed.error:
                expected.refused = step
                return expected
            source = partition_for(encoded(trace, step)[0], PARTITIONS)
            for record in observed.out:
                del record["partition"]
                expected.out[place_of(record)][source].append(record)
            expected.effects.update(observed.effects)
        expected.contents = player.contents(trace)
    return expected


# What the workers say


def prepare(trace: Trace, folder: Path) -> Log:
    log = Log.open(folder)
    for topic in trace.body["topics"]:
        log.create_topic(topic, PARTITIONS)
    return log


def produce(trace: Trace, log: Log, steps: list[Step]) -> None:
    """Append all inputs, in one batch for each partition."""
    (topic,) = trace.sources
    batches: dict[int, list[New]] = defaultdict(list)
    for step in steps:
        record = encoded(trace, step)
        batches[partition_for(record[0], PARTITIONS)].append(record)
    for number, batch in batches.items():
        with log.partition(topic, number) as partition:
            partition.append(batch)


def read(trace: Trace, log: Log) -> dict[Place, list[dict[str, Any]]]:
    """The output of each key, in order."""
    out: dict[Place, list[dict[str, Any]]] = defaultdict(list)
    for topic in trace.sinks:
        key_serde, value_serde = trace.serdes(topic)
        for number in range(PARTITIONS):
            with log.partition(topic, number) as partition:
                for key, value, timestamp, headers, _ in partition.read(0):
                    record = Record(
                        None if key is None else key_serde.decode(key),
                        None if value is None else value_serde.decode(value),
                        timestamp,
                        headers,
                    )
                    written = written_record(topic, record)
                    out[place_of(written)].append(written)
    return out


def open_apps(topology: Topology, case: Case, folder: Path) -> list[App]:
    """Two applications whose workers have both joined before either takes a task: so each has its half from the start.

    The clock stands still. With a record cache each record is a commit, as in the driver: what is folded hangs on it.
    """
    config = config_of(case)
    clock = ManualClock()
    joined = threading.Barrier(WORKERS)

    def app(name: str) -> App:
        def make(clock: Clock) -> Worker:
            connection = LogConnection(Log.open(folder), config.app_id, name, folder / "apps" / config.app_id)
            at_once = 1 if config.cache_bytes else READ
            worker = Worker(topology, config, connection, folder / "apps" / config.app_id / "tasks", clock, at_once)
            joined.wait(PATIENCE)
            return worker

        return App(make, topology, clock=clock)

    return [app(f"worker-{number}") for number in range(WORKERS)]


def together(trace: Trace, parts: list[Contents]) -> Contents:
    """The rows of both workers' stores."""
    rows: dict[str, list[list[Any]]] = {}
    timestamps: dict[str, list[int | None]] = {}
    for name in trace.body["stores"]:
        found = sorted(
            (
                (key, value, at)
                for part in parts
                for (key, value), at in zip(part.rows[name], part.timestamps[name], strict=True)
            ),
            key=row_order,
        )
        rows[name] = [[key, value] for key, value, _ in found]
        timestamps[name] = [at for _, _, at in found]
    return Contents(rows, timestamps, {})


def wait_for_the_failure(apps: list[App]) -> None:
    while True:
        for app in apps:
            app.wait_idle()


# Comparison


def is_within(few: list[Any], many: list[Any]) -> bool:
    """Whether the records are among the others, in this order."""
    rest: Iterator[Any] = iter(many)
    return all(record in rest for record in few)


def check_output(expected: Expected, got: dict[Place, list[dict[str, Any]]]) -> None:
    """A key's records come in the driver's order; where several tasks put out the same key, in that of each task."""
    assert set(got) == set(expected.out)
    for place, by_source in expected.out.items():
        records = got[place]
        if len(by_source) == 1:
            (only,) = by_source.values()
            assert (records == only) if place[1] != "null" else (sorted_(records) == sorted_(only)), place
        else:
            assert sorted_(records) == sorted_([record for part in by_source.values() for record in part]), place
            if place[1] != "null":
                assert all(is_within(part, records) for part in by_source.values()), place


def sorted_(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=json.dumps)


@pytest.mark.parametrize("path", [pytest.param(path, id=f"local-bulk-{path.stem}") for path in BULK])
def test_two_workers_put_out_what_the_driver_does(path: Path, tmp_path: Path) -> None:
    trace = load_trace(path)
    expected = drive(trace)
    steps = keyed_inputs(trace)
    if expected.refused is not None:
        steps = steps[: steps.index(expected.refused)]
    topology, case = build(trace)
    with prepare(trace, tmp_path) as log:
        produce(trace, log, steps)
        with ExitStack() as running:
            apps = open_apps(topology, case, tmp_path)
            starting = [threading.Thread(target=app.start) for app in apps]
            for thread in starting:
                thread.start()
            for thread in starting:
                thread.join()
            for app in apps:
                running.callback(app.stop)
                app.wait_idle()
            shares = Counter(log.group(config_of(case).app_id).owners().values())
            assert list(shares.values()) == [PARTITIONS // WORKERS] * WORKERS
            if expected.refused is None:
                parts = [store_contents(trace, app.store) for app in apps]
                expected_rows = expected.contents
                assert expected_rows is not None
                got = together(trace, parts)
                assert got.rows == expected_rows.rows
                assert got.timestamps == expected_rows.timestamps
            else:
                produce(trace, log, [expected.refused])
                with pytest.raises(StreamsError, match="timestamp"):
                    wait_for_the_failure(apps)
        check_output(expected, read(trace, log))
        assert Counter(case.take_effects()) == expected.effects


@pytest.mark.parametrize("name", IN_PROCESSES)
def test_two_processes_put_out_what_the_driver_does(name: str, tmp_path: Path) -> None:
    (path,) = (path for path in BULK if load_trace(path).topology == name)
    trace = load_trace(path)
    topology, case = build(trace)
    config = config_of(case)
    (topic,) = trace.sources
    with prepare(trace, tmp_path) as log:
        fleet = Fleet(topology, config, f"log://{tmp_path}", WORKERS).start()
        try:
            group = log.group(config.app_id)
            give_up = time.monotonic() + PATIENCE
            # Both have tasks before there is anything to do.
            while len(set(group.owners().values())) < WORKERS or len(group.owners()) < PARTITIONS:
                fleet.watch(0.05)
                assert time.monotonic() < give_up
            produce(trace, log, keyed_inputs(trace))
            ends = {}
            for number in range(PARTITIONS):
                with log.partition(topic, number) as partition:
                    ends[topic, number] = partition.end
            while not all(group.committed().get(place, 0) >= end for place, end in ends.items()):
                fleet.watch(0.05)
                assert time.monotonic() < give_up
        finally:
            fleet.stop()
        check_output(drive(trace), read(trace, log))
