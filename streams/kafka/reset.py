"""An application on Kafka made to begin anew: its group's offsets, its internal topics and its state on this machine
go. It owns which those are. State on other machines is theirs to delete: no one here can reach it."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StateError
from headwater.streams.changes import memory_key, store_memories
from headwater.streams.consumer import Place
from headwater.streams.identity import Identity, without_unused
from headwater.streams.kafka.admin import KafkaAdmin
from headwater.streams.kafka.cluster import Cluster
from headwater.streams.kafka.connection import memory_topic
from headwater.streams.kafka.dealing import is_tasks_topic
from headwater.streams.kafka.producer import KafkaProducer
from headwater.streams.kafka.record import KafkaRecord, identity_topic
from headwater.streams.kafka.roster import workers_topic
from headwater.streams.kafka.settings import kafka_settings
from headwater.streams.reset import Reset, Target, checked_inputs, marked, own_topics
from headwater.streams.run import state_directory
from headwater.streams.sockets import SOCKETS

__all__ = ["planned_reset", "planned_reset_of_unused"]

log = logging.getLogger("headwater")

# No cogroup has more streams.
MOST_STEPS = 50


def planned_reset(topology: Topology, config: Config, broker: str, target: Target, topics: Collection[str]) -> Reset:
    """A reset of an application; refused if one of its workers is alive, on whatever machine."""
    admin, app_id = KafkaAdmin(broker, kafka=config.kafka), config.app_id
    admin.refuse_if_alive(app_id, "reset")
    there = {info.name: info.partitions for info in admin.topics()}
    inputs = checked_inputs(topology, config, there, topics)
    places = [(topic, number) for topic in sorted(inputs) for number in range(there[topic])]
    before = admin.committed(app_id)
    chosen = [place for place in places if not topics or place[0] in topics]
    starts: dict[Place, int] = {} if target is None else admin.targets(chosen, target)
    internal = _internal_topics(topology, config, broker, there)
    state = _state(state_directory(config, broker).absolute())

    def run() -> None:
        admin.refuse_if_alive(app_id, "reset")
        with marked(state_directory(config, broker).absolute()):
            for path in state:
                shutil.rmtree(path)
            for topic in internal:
                admin.delete_topic(topic)
            if app_id in admin.groups():
                admin.delete_group(app_id)
            if starts:
                admin.set_offsets(app_id, starts)

    return Reset(state, internal, {place: (before.get(place), starts.get(place)) for place in places}, run)


def planned_reset_of_unused(config: Config, broker: str) -> Reset:
    """A reset of what was taken out of the application before it last started."""
    admin, app_id = KafkaAdmin(broker, kafka=config.kafka), config.app_id
    admin.refuse_if_alive(app_id, "reset")
    record = _record(config, broker)
    known = record.load() or Identity(app_id)
    there = {info.name: info.partitions for info in admin.topics()}
    names = {f"{app_id}-{topic.kept or name}" for name, topic in known.unused_topics.items()}
    names |= {f"{app_id}-{store.kept or name}-changelog" for name, store in known.unused.items()}
    names |= {memory_topic(app_id, f"{part.number}_0") for part in known.parts if part.gone}
    topics = sorted(names & there.keys())
    # What the steps of such a store remember, in the tasks that go on: a store of its name must not begin with it.
    memories = [memory_topic(app_id, f"{part.number}_0") for part in known.parts if not part.gone]
    stores = [store.kept or name for name, store in known.unused.items()]
    gone = [name for store in stores for name in (*store_memories(store), *_further_steps(store))]

    def run() -> None:
        admin.refuse_if_alive(app_id, "reset")
        with KafkaProducer(broker, kafka=config.kafka) as producer:
            for topic in memories if gone else ():
                for partition in range(there.get(topic, 0)):
                    for name in gone:
                        producer.send(topic, key=memory_key(name), partition=partition)
        for topic in topics:
            admin.delete_topic(topic)
        record.store(without_unused(known))

    return Reset([], topics, {}, run, tuple(known.unused))


def _further_steps(store: str) -> list[str]:
    """The names of what the other steps of a store remember, as those of a cogroup: how many it had is not known."""
    return [f"step of {store} {number}" for number in range(2, MOST_STEPS + 1)]


def _record(config: Config, broker: str) -> KafkaRecord:
    settings = kafka_settings(broker, config.kafka)
    return KafkaRecord(settings, config.app_id, Cluster(settings))


def _internal_topics(topology: Topology, config: Config, broker: str, there: Collection[str]) -> list[str]:
    """The topics that the application has made for itself.

    Only names that it gives: whatever begins with its id could be those of another, shop-2's beside shop's.
    """
    app_id = config.app_id
    try:
        known = _record(config, broker).load()
    except StateError as error:
        # A reset is the remedy for that.
        log.warning("%s", error)
        known = None
    names = own_topics(topology, app_id, known) | {workers_topic(app_id), identity_topic(app_id)}
    names |= {f"{app_id}-{store}-changelog" for store in topology.stores}
    if known is not None:
        for stores in (known.stores, known.unused):
            names |= {f"{app_id}-{store.kept or name}-changelog" for name, store in stores.items()}
    memory = re.compile(rf"{re.escape(app_id)}-operators-\d+-changelog")
    return sorted(
        topic for topic in there if topic in names or memory.fullmatch(topic) or is_tasks_topic(topic, app_id)
    )


def _state(directory: Path) -> list[Path]:
    return [path for path in (directory / "slots", directory / SOCKETS) if path.exists()]
