"""An application on Kafka made to begin anew: its group's offsets, its internal topics and its state on this machine
go. It owns which those are. State on other machines is theirs to delete: no one here can reach it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.streams.consumer import Place
from headwater.streams.kafka.admin import KafkaAdmin
from headwater.streams.kafka.dealing import is_tasks_topic
from headwater.streams.kafka.roster import workers_topic
from headwater.streams.reset import Reset, Target, checked_inputs, marked
from headwater.streams.run import state_directory
from headwater.streams.sockets import SOCKETS

__all__ = ["planned_reset"]


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
    internal = _internal_topics(topology, app_id, there)
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


def _internal_topics(topology: Topology, app_id: str, there: Collection[str]) -> list[str]:
    """The topics that the application has made for itself.

    Only names that it gives: whatever begins with its id could be those of another, shop-2's beside shop's.
    """
    names = {f"{app_id}-{topic}" for topic in topology.internal_topics} | {workers_topic(app_id)}
    names |= {f"{app_id}-{store}-changelog" for store in topology.stores}
    memory = re.compile(rf"{re.escape(app_id)}-operators-\d+-changelog")
    return sorted(
        topic for topic in there if topic in names or memory.fullmatch(topic) or is_tasks_topic(topic, app_id)
    )


def _state(directory: Path) -> list[Path]:
    return [path for path in (directory / "slots", directory / SOCKETS) if path.exists()]
