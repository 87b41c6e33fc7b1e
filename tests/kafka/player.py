"""The real worker over Kafka as a player of traces.

Kafka's client cannot write the timestamp 0 (it means now to it). So a trace is moved first, where it has one: its
inputs of time 0 are taken at 1, and what must come out is what the test driver, which all traces prove, says to that,
again with 1 for 0.
"""

import copy
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headwater import Topology
from headwater.dsl.records import Headers
from headwater.streams.kafka.cluster import Cluster
from headwater.streams.kafka.reader import Reader
from headwater.streams.queues import RawRecord
from headwater.streams.run import open_app
from tests.conformance.case import Case
from tests.conformance.driver import DriverPlayer
from tests.conformance.local import AppPlayer, ManualClock, config_of
from tests.conformance.replay import Trace, build, replay
from tests.kafka.broker import PATIENCE, Broker


class WaitingClock(ManualClock):
    """A clock that stands still between steps, and lets others work while the worker rests."""

    def sleep(self, seconds: float) -> None:
        time.sleep(0.002)


def without_time_zero(trace: Trace) -> Trace:
    """A trace none of whose records, in and out, has the timestamp 0."""
    stamps = [record["ts"] for step in trace.steps for record in (step.get("in", {"ts": 1}), *step["out"])]
    if 0 not in stamps:
        return trace
    body = copy.deepcopy(trace.body)
    for step in body["steps"]:
        if "in" in step:
            step["in"]["ts"] = max(step["in"]["ts"], 1)
    moved = replace(trace, body=body)
    topology, case = build(moved)
    with DriverPlayer(moved, topology, case) as driver:
        said = replay(moved, driver)
    for step, observed in zip(body["steps"], said.observed, strict=False):
        for record in observed.out:
            record["ts"] = max(record["ts"], 1)
        step |= {"out": observed.out, "effects": observed.effects, "dropped": observed.dropped}
    if said.contents is not None:
        body |= {"stores": said.contents.rows, "store_ts": said.contents.timestamps}
        body["store_versions"] = said.contents.versions
    body["metrics"]["dropped_records_total"] = sum(observed.dropped for observed in said.observed)
    return moved


class KafkaPlayer(AppPlayer):
    """On a broker, whose topics it makes and deletes, with one partition each."""

    def __init__(self, trace: Trace, topology: Topology, case: Case, broker: Broker) -> None:
        self._admin = broker.admin()
        # A step is over when Kafka has said that there is nothing more.
        settings = {"bootstrap.servers": broker.bootstrap, "fetch.wait.max.ms": "10"}
        self._cluster = Cluster(settings)
        self._topics = set(trace.body["topics"])
        self._create()
        self._reader = Reader(settings, "player")
        for topic in trace.sinks:
            self._reader.start((topic, 0), 0)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-kafka-", ignore_cleanup_errors=True)
        self._app_id = f"{trace.topology}-{uuid.uuid4().hex[:6]}"
        config = replace(
            config_of(case), app_id=self._app_id, state_dir=self._folder.name, kafka={"fetch.wait.max.ms": "10"}
        )
        clock = WaitingClock()
        app = open_app(topology, config, f"kafka://{broker.bootstrap}", clock=clock, at_once=1)
        super().__init__(trace, topology, case, clock, app)

    def _create(self) -> None:
        new = [NewTopic(topic, 1, 1) for topic in self._topics]
        for future in self._admin.create_topics(new, operation_timeout=PATIENCE).values():
            future.result()
        self._until(lambda there: self._topics <= there.keys())

    def _until(self, wanted: Callable[[dict[str, int]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not wanted(self._cluster.topics(anew=True)):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def __enter__(self) -> "KafkaPlayer":
        try:
            self._app.start()
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._app.stop()
        self._clean()

    def _clean(self) -> None:
        self._reader.close()
        self._folder.cleanup()
        own = [topic for topic in self._cluster.topics(anew=True) if topic.startswith(f"{self._app_id}-")]
        for future in self._admin.delete_topics([*self._topics, *own], operation_timeout=PATIENCE).values():
            future.result()
        self._until(lambda there: not self._topics & there.keys())

    def _send(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        self._producer.produce(topic, value, key, 0, timestamp=timestamp, headers=list(headers))
        assert self._producer.flush(PATIENCE) == 0
        if self._is_sink(topic):
            assert len(list(self._read(topic))) == 1

    def _read(self, topic: str) -> list[RawRecord]:
        place = topic, 0
        end = self._cluster.ends([place])[place]
        deadline = time.monotonic() + PATIENCE
        while self._reader.end(place) < end:
            assert time.monotonic() < deadline, f"{topic} is not read up to {end}"
            self._reader.fill()
        return self._reader.read(place, 1_000_000)
