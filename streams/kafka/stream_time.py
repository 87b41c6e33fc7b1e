"""`headwater reset --stream-time` on Kafka: every task is asked by a record in the changelog of its operator memory. It
owns how it is found out where the application is and what waits there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.consumer import Place
from headwater.streams.identity import adopted
from headwater.streams.kafka.admin import KafkaAdmin
from headwater.streams.kafka.cluster import Cluster
from headwater.streams.kafka.connection import memory_topic
from headwater.streams.kafka.offset_notes import decode
from headwater.streams.kafka.producer import KafkaProducer
from headwater.streams.kafka.reader import Reader
from headwater.streams.kafka.record import KafkaRecord
from headwater.streams.kafka.settings import kafka_settings
from headwater.streams.queues import RawRecord
from headwater.streams.reset import all_tasks, identity_now
from headwater.streams.set_back import SetBack
from headwater.streams.stream_time import StreamTimes, chosen

__all__ = ["kafka_stream_times"]

# How long the brokers may take to bring the records that wait.
WAIT_SECONDS = 60.0


def kafka_stream_times(topology: Topology, config: Config, broker: str, to: int | None) -> StreamTimes:
    """An application's stream times; refused if one of its workers is alive, on whatever machine."""
    admin, app_id = KafkaAdmin(broker, kafka=config.kafka), config.app_id
    admin.refuse_if_alive(app_id, "reset")
    there = {info.name: info.partitions for info in admin.topics()}
    settings = kafka_settings(broker, config.kafka)
    record = KafkaRecord(settings, app_id, Cluster(settings))
    _, fit = record.compared(identity_now(topology, config, there), config.renamed)
    tasks = all_tasks(adopted(topology, fit.identity), config, there)
    places = [(memory_topic(app_id, spec.task_id), spec.partition) for spec in tasks]
    if missing := sorted({topic for topic, number in places if number >= there.get(topic, 0)}):
        raise StreamsError(
            f"{app_id!r} has no {', '.join(missing)}, so it has not run here with this topology: there is no stream "
            "time to set back."
        )
    committed = admin.committed_notes(app_id)
    before = {f"{topic}-{number}": decode(note)[0] for (topic, number), (_, note) in sorted(committed.items())}
    offsets = {place: at for place, (at, _) in committed.items()}
    if to is None:
        to = chosen(topology, config, _waiting(settings, app_id, admin.waiting(offsets)))
    asked = to

    def run() -> None:
        admin.refuse_if_alive(app_id, "reset")
        key, row = SetBack(asked).row()
        with KafkaProducer(broker, kafka=config.kafka) as producer:
            for topic, number in places:
                producer.send(topic, key=key, value=row, partition=number)

    return StreamTimes(asked, before, run)


def _waiting(
    settings: Mapping[str, Any], app_id: str, offsets: Mapping[Place, int]
) -> Iterator[tuple[Place, RawRecord]]:
    """The next record of each input, where there is one."""
    reader = Reader(settings, app_id)
    try:
        for place, offset in offsets.items():
            reader.start(place, offset)
        left, deadline = dict(offsets), time.monotonic() + WAIT_SECONDS
        while left:
            if time.monotonic() > deadline:
                names = ", ".join(f"{topic}-{number}" for topic, number in left)
                raise StreamsError(f"The brokers do not bring the next records of {names}: look whether they are well.")
            reader.fill()
            for place, offset in list(left.items()):
                found = reader.read(place, 1)
                if found:
                    yield place, found[0]
                if found or reader.caught_up(place, offset) or place in reader.cut:
                    del left[place]
            time.sleep(0.01)
    finally:
        reader.close()
