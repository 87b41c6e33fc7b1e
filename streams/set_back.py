"""Stream time set back, for a task that a record from the future has taken there. It owns what of a task's memory is
stream time and how a task is asked to go back; who asks, and for which time, is `headwater reset --stream-time`'s.

It takes two more rows of a task's memory:

| name | content |
|---|---|
| `set back` | a request: `id`, which tells it from others; `to`, above which no time stays; `done` |
| `leapt` | the highest time that each store had reached before, by its name: rows up to there do not tell its time |

The task does it when it is opened next, and its first commit writes the lowered times and `done` together. So it is
done once, whoever opens the task, and however often that is interrupted. Rows stay; what the leap has let expire is
gone.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import msgspec

from headwater.state.backend import Backend
from headwater.streams.changes import TASK, committed_memory, memory_key, pickled

__all__ = ["LEAPT", "SET_BACK", "SetBack", "ask", "is_pending", "reached", "set_back"]

SET_BACK, LEAPT = "set back", "leapt"

# What operators call the times in their memory.
_TIMES = ("observed", "stream_time", "closed")
_STORE = "store "
# How the names of operators' memories begin; the last two are those of earlier versions.
_STEPS = ("step of ", "steps of ", "node ", "shared ")


class SetBack(msgspec.Struct, frozen=True):
    """A request to set stream time back to a time."""

    to: int
    id: str = msgspec.field(default_factory=lambda: uuid4().hex)

    def row(self) -> tuple[bytes, bytes]:
        """The row of a task's memory that asks for it."""
        return memory_key(SET_BACK), pickled({"id": self.id, "to": self.to, "done": False})


def ask(backend: Backend, wanted: SetBack) -> None:
    """Ask the task that is opened next over a back end, unless one has been asked already."""
    asked = committed_memory(backend, SET_BACK)
    if asked is None or asked["id"] != wanted.id:
        key, row = wanted.row()
        backend.write({TASK: {key: row}})


def is_pending(memories: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a task has been asked to go back, and has not yet."""
    return not memories.get(SET_BACK, {"done": True})["done"]


def reached(memories: Mapping[str, Mapping[str, Any]]) -> int:
    """The highest time that a task knows of, -1 for none.

    >>> reached({"times": {"stream": 5, "partitions": {}}, "store s": {"memory": (9, 0)}, "node n": {"observed": 7}})
    9
    """
    times = memories.get("times", {"stream": -1, "partitions": {}})
    found: list[int] = [times["stream"], *times["partitions"].values()]
    for name, memory in memories.items():
        if name.startswith(_STORE):
            found.append(memory["memory"][0])
        elif name.startswith(_STEPS):
            found += [memory[field] for field in _TIMES if field in memory]
    return max(found)


def set_back(memories: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The memories of a task after it has done what it was asked to.

    >>> memories = {"set back": {"id": "a", "to": 10, "done": False}, "store s": {"memory": (900, 3)}}
    >>> set_back(memories)
    {'set back': {'id': 'a', 'to': 10, 'done': True}, 'leapt': {'s': 900}, 'store s': {'memory': (10, 3)}}
    """
    to: int = memories[SET_BACK]["to"]
    leapt: dict[str, int] = dict(memories.get(LEAPT, {}))
    found: dict[str, dict[str, Any]] = {SET_BACK: {**memories[SET_BACK], "done": True}, LEAPT: leapt}
    for name, memory in memories.items():
        if name == "times":
            partitions = {place: min(time, to) for place, time in memory["partitions"].items()}
            found[name] = {**memory, "stream": min(memory["stream"], to), "partitions": partitions}
        elif name == "punctuators" and memory:
            queues = dict(memory["queues"])
            # Sorted is in a heap's order; one after its last multiple of stream time would never be due again.
            entries = [(*e[:2], min(e[2], (to // e[1] + 1) * e[1]), *e[3:]) for e in queues["stream-time"]]
            queues["stream-time"] = sorted(entries, key=lambda entry: entry[2])
            found[name] = {**memory, "queues": queues}
        elif name.startswith(_STORE):
            time, *rest = memory["memory"]
            store = name.removeprefix(_STORE)
            leapt[store] = max(leapt.get(store, -1), time)
            found[name] = {**memory, "memory": (min(time, to), *rest)}
        elif name.startswith(_STEPS):
            found[name] = {**memory, **{field: min(memory[field], to) for field in _TIMES if field in memory}}
        elif name not in found:
            found[name] = memory
    return found
