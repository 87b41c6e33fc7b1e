"""What a task's commit writes and a restart reads back. It owns the rows a task keeps of itself, beside its stores',
in the reserved store `TASK` of its back end:

| key | row |
|---|---|
| `offset` 00 topic 00 partition | the next offset to read, as decimal text |
| `memory` 00 name | pickled: a node's memory, a store's, the times, the punctuators, a processor's attributes |

Memory is pickled since it keeps tuples, sets and named tuples apart, which JSON and MessagePack do not. It is read back
only by the application that wrote it; a row that another wrote is not safe to load.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.dsl.topology import ProcessorNode, StoreSpec, Topology
from headwater.state.backend import Backend
from headwater.streams.context import Output
from headwater.streams.stores import Store, open_store

__all__ = [
    "NOTHING",
    "TASK",
    "Changes",
    "committed_memory",
    "committed_offsets",
    "committed_store",
    "memory_key",
    "offset_rows",
    "pickled",
    "read_committed",
    "step_memory",
    "step_number",
    "store_memories",
    "store_memory",
]

TASK = "|task"


@dataclass
class Changes:
    """What a commit must write, all or nothing: rows, the task's own rows, results, and the offsets reached."""

    rows: dict[str, dict[bytes, bytes | None]]
    memory: dict[bytes, bytes | None]
    offsets: dict[tuple[str, int], int]
    outputs: list[Output] = field(default_factory=list)

    def batch(self) -> dict[str, dict[bytes, bytes | None]]:
        """What belongs into the task's back end, in one atomic write."""
        own = dict(self.memory)
        for (topic, partition), offset in self.offsets.items():
            own[_offset_key(topic, partition)] = b"%d" % offset
        batch = {store: rows for store, rows in self.rows.items() if rows}
        if own:
            batch[TASK] = own
        return batch


def offset_rows(offsets: Mapping[tuple[str, int], int], backend: Backend) -> dict[bytes, bytes | None]:
    """The rows that make these the committed offsets, and no others."""
    rows: dict[bytes, bytes | None] = {key: None for key, _ in backend.scan(TASK, b"offset\0", b"offset\1")}
    return rows | {_offset_key(*place): b"%d" % offset for place, offset in offsets.items()}


def _offset_key(topic: str, partition: int) -> bytes:
    return b"offset\0%s\0%d" % (topic.encode(), partition)


def pickled(memory: Mapping[str, Any]) -> bytes:
    """A memory as the bytes of its row."""
    return pickle.dumps(dict(memory), protocol=pickle.HIGHEST_PROTOCOL)


NOTHING = pickled({})


def committed_store(spec: StoreSpec, backend: Backend) -> Store:
    """A store as it was committed last, apart from what its task is doing now; not to be written to."""
    store = open_store(spec, backend)
    memory = committed_memory(backend, store_memory(spec))
    if memory is not None:
        store.remember(memory["memory"])
    return store


def committed_memory(backend: Backend, name: str) -> dict[str, Any] | None:
    """The memory of this name that was committed, None if there is none."""
    (data,) = backend.get_many(TASK, [memory_key(name)])
    memory: dict[str, Any] | None = None if data is None else pickle.loads(data)
    return memory


def store_memory(spec: StoreSpec) -> str:
    """The name of a store's memory."""
    return f"store {spec.rows}"


def step_memory(topology: Topology, node: str, store: str) -> str:
    """The name of the memory of a step that keeps a store. Steps' own names shift as others are added, so it goes by
    the store's; several steps of one store, as of a cogroup, are told apart by their order."""
    number = step_number(topology, node, store)
    return f"step of {topology.stores[store].rows}" + (f" {number + 1}" if number else "")


def step_number(topology: Topology, node: str, store: str) -> int:
    """Which of the steps that keep a store it is, from 0 on."""
    keeping = [
        name
        for name, step in topology.nodes.items()
        if isinstance(step, ProcessorNode) and getattr(step.op, "store", None) == store
    ]
    return keeping.index(node) if node in keeping else 0


def store_memories(rows: str) -> list[str]:
    """The names of all memories that belong to a store, by the name its rows are kept under."""
    return [f"store {rows}", f"step of {rows}", f"steps of {rows}"]


def memory_key(name: str) -> bytes:
    """Where the memory of this name is kept."""
    return b"memory\0" + name.encode()


def read_committed(backend: Backend) -> tuple[dict[tuple[str, int], int], dict[str, dict[str, Any]]]:
    """The offsets and memories that were committed."""
    memories: dict[str, dict[str, Any]] = {}
    for key, data in backend.scan(TASK, b"", None):
        kind, name = key.split(b"\0", 1)
        if kind != b"offset":
            memories[name.decode()] = pickle.loads(data)
    return committed_offsets(backend), memories


def committed_offsets(backend: Backend) -> dict[tuple[str, int], int]:
    """The offsets that were committed."""
    offsets: dict[tuple[str, int], int] = {}
    for key, data in backend.scan(TASK, b"offset\0", b"offset\1"):
        topic, partition = key.removeprefix(b"offset\0").rsplit(b"\0", 1)
        offsets[topic.decode(), int(partition)] = int(data)
    return offsets
