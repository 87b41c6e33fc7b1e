"""A backfill over four partitions through one worker on Kafka ends as in the test driver; and one whose functions are
slow gets on."""

import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, KStream, KTable, StreamsBuilder
from headwater.streams.run import open_app
from tests.kafka.broker import Broker
from tests.kafka.place import Place
from tests.kafka.reading import records as written
from tests.streams.apps import until
from tests.streams.backfills import AT_ONCE, KINDS, PARTITIONS, expected, fill, last, records


class Named(StreamsBuilder):
    """Reads the backfill's topics under names of the test's own."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def stream(self, topic: Any, **options: Any) -> KStream:
        return super().stream(self.prefix + topic, **options)

    def table(self, topic: str, **options: Any) -> KTable:
        return super().table(self.prefix + topic, **options)


@pytest.mark.parametrize("kind", ["table_then_window", "joined_with_a_source", "merged_with_itself"])
def test_a_backfill_over_several_partitions_of_kafka_loses_nothing_behind_a_repartition(
    kind: str, kafka: Broker, tmp_path: Path
) -> None:
    prefix = f"backfill-{uuid.uuid4().hex[:8]}-"
    for topic in ("orders", "others", "users", "out"):
        # The records' times are long ago: retention would delete them as soon as they are there.
        kafka.create(prefix + topic, PARTITIONS, retention_ms="-1")
    broker = f"kafka://{kafka.bootstrap}"
    sent = records(1_500)
    fill(broker, sent, prefix)
    builder = Named(prefix)
    KINDS[kind](builder, timedelta(seconds=10)).to_stream().to(f"{prefix}out")
    config = Config(f"{prefix}app", state_dir=tmp_path, **AT_ONCE)
    with open_app(builder.build(), config, broker) as app:
        app.wait_idle(300)
        dropped = app.metrics()["dropped-records-total"]
    results = last((record.key(), record.value()) for record in written(kafka, f"{prefix}out"))
    assert (results, dropped) == (expected(kind, sent), 0)


def test_a_slow_function_gets_on_although_the_group_waits_for_a_few_seconds_only(kafka: Broker, tmp_path: Path) -> None:
    place = Place(kafka, tmp_path)
    place.send(["ann"] * 1_000)
    slow = place.counting(lambda value: time.sleep(0.1) or value)
    # 250 records take 25 s.
    settings = {"max.poll.interval.ms": "10000", "session.timeout.ms": "6000"}
    with place.app(slow, kafka=settings) as app:
        until(lambda: place.counts().get("ann"), 120)
        assert app.restarts == 0
    found = place.counts()["ann"]
    assert found == list(range(1, len(found) + 1))
    assert len(found) < 250
