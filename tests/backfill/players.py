"""A backfill through the test driver, and through workers on the embedded log."""

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from headwater import Bytes, Config, Topology, TopologyTestDriver
from headwater.state.log import Log
from headwater.streams.app import App
from headwater.streams.queues import RawRecord
from headwater.streams.run import open_app
from tests.backfill.inputs import PARTITIONS, Inputs, Sent
from tests.backfill.results import Outcome, decoded
from tests.backfill.topologies import read_by

PATIENCE = 600.0


def settings(app_id: str = "backfill", **options: object) -> Config:
    """What has closed is looked for with every record: else the clock would decide what is written."""
    none = timedelta(0)
    return Config(app_id, join_emit_interval=none, window_emit_interval=none, **options)  # type: ignore[arg-type]


def by_driver(
    topology: Topology, inputs: Inputs, topics: Sequence[str], *, one_after_the_other: bool = False
) -> Outcome:
    """Through the test driver, record by record as they arrived; or one partition after the other."""
    records = inputs.of(read_by(topology))
    if one_after_the_other:
        records.sort(key=lambda record: record.partition)
    with TopologyTestDriver(topology, settings(), partitions=PARTITIONS) as driver:
        given = {topic: driver.input(topic) for topic in read_by(topology)}
        for record in records:
            given[record.topic].send_bytes(
                record.key, record.value, at=record.timestamp, headers=record.headers, partition=record.partition
            )
        outcome = Outcome({})
        for topic in topics:
            found = driver.output(topic, Bytes(), Bytes()).read_all()
            outcome.rows[topic] = decoded(topology, topic, [(r.key, r.value, r.timestamp, r.headers) for r in found])
        outcome.count([driver.metrics()["steps"]])
    return outcome


# ---- the embedded log ------------------------------------------------------------------------------------------------


def make_topics(log: Log, topics: Iterable[str]) -> None:
    for topic in topics:
        log.create_topic(topic, PARTITIONS)


def fill(log: Log, records: Iterable[Sent]) -> None:
    """Append records, each to its partition."""
    waiting: dict[tuple[str, int], list[tuple[bytes, bytes, int, object]]] = {}
    for record in records:
        waiting.setdefault((record.topic, record.partition), []).append(
            (record.key, record.value, record.timestamp, record.headers)
        )
    for place, appended in waiting.items():
        with log.partition(*place) as partition:
            partition.append(appended)  # type: ignore[arg-type]


def written(log: Log, topic: str) -> list[RawRecord]:
    """All records of a topic, partition by partition."""
    found: list[RawRecord] = []
    for number in range(PARTITIONS):
        with log.partition(topic, number) as partition:
            at = 0
            while records := partition.read(at):
                found += records
                at = records[-1][4] + 1
    return found


def outcome_of(log: Log, topology: Topology, topics: Sequence[str]) -> Outcome:
    """What is in the topics of results."""
    return Outcome({topic: decoded(topology, topic, [r[:4] for r in written(log, topic)]) for topic in topics})


def count_app(outcome: Outcome, app: App) -> None:
    """Take over the counts of an application."""
    outcome.count(task["steps"] for task in app.metrics()["tasks"].values())


def by_worker(topology: Topology, inputs: Inputs, topics: Sequence[str], folder: Path) -> Outcome:
    """Through one worker, over topics that were full before it started."""
    with Log.open(folder) as log:
        make_topics(log, read_by(topology))
        fill(log, inputs.of(read_by(topology)))
        with open_app(topology, settings(), f"log://{folder}") as app:
            app.wait_idle(PATIENCE)
            outcome = outcome_of(log, topology, topics)
            count_app(outcome, app)
    return outcome


def by_two_workers(topology: Topology, inputs: Inputs, topics: Sequence[str], folder: Path) -> Outcome:
    """Through two workers that have half of the tasks each before they are given anything: none moves any more."""
    with Log.open(folder) as log, ExitStack() as stack:
        make_topics(log, read_by(topology))
        apps = [open_app(topology, settings(), f"log://{folder}") for _ in range(2)]
        for app in apps:
            stack.enter_context(app)
        await_share(apps)
        for app in apps:
            app.pause()
        fill(log, inputs.of(read_by(topology)))
        for app in apps:
            app.resume()
        await_idle(apps)
        outcome = outcome_of(log, topology, topics)
        for app in apps:
            count_app(outcome, app)
    return outcome


def await_share(apps: Sequence[App]) -> None:
    """Wait until all tasks run, and every application has about as many as the others."""
    deadline = time.monotonic() + PATIENCE
    while True:
        told = [app.metrics() for app in apps]
        shares = [len(each["tasks"]) for each in told]
        if sum(shares) == len(told[0]["all-tasks"]) and max(shares) - min(shares) <= 1:
            return
        assert time.monotonic() < deadline, f"the tasks are not shared out: {shares} of {told[0]['all-tasks']}"
        time.sleep(0.05)


def await_idle(apps: Sequence[App]) -> None:
    """Wait until none of several applications has anything left to do, for another of them either."""
    before = None
    while True:
        for app in apps:
            app.wait_idle(PATIENCE)
        now = [app.metrics()["records-total"] for app in apps]
        if now == before:
            return
        before = now
