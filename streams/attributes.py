"""What users' processors keep in their attributes, as operator memory. It owns which attributes are kept (public ones
that hold plain data or schedules and differ from what init() left) and how a handle to a schedule survives; when they
are written and read is the task's.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from headwater.streams.context import Schedule, ScheduleId

__all__ = ["Attributes"]


class Attributes:
    """The attributes of one processor, made when its init() has just returned."""

    def __init__(self, processor: object) -> None:
        self._processor = processor
        self._initial = {name: data for name, _, data in self._plain()}

    def memory(self) -> dict[str, bytes]:
        """The attributes that are no longer as init() left them; in one piece, since they may share objects."""
        initial = self._initial
        changed = {name: value for name, value, data in self._plain() if data != initial.get(name)}
        return {"attributes": _dumped(changed)} if changed else {}

    def remember(self, memory: Mapping[str, bytes], find: Callable[[ScheduleId], Schedule]) -> None:
        """Set the attributes to what memory gave; `find` gives the schedule that a handle stands for."""
        if memory:
            for name, value in _Unpickler(memory["attributes"], find).load().items():
                setattr(self._processor, name, value)

    def _plain(self) -> list[tuple[str, Any, bytes]]:
        """Name, value and bytes of each attribute that can be kept."""
        found = []
        for name, value in vars(self._processor).items():
            if not name.startswith("_"):
                try:
                    found.append((name, value, _dumped(value)))
                except (_NotPlain, RecursionError):
                    continue
        return found


class _NotPlain(Exception):
    """Something that is neither data nor a schedule; it is the processor's to make anew in init()."""


class _Pickler(pickle.Pickler):
    """Writes plain data, and a schedule as its id."""

    def reducer_override(self, obj: object) -> Any:
        """Called for whatever is not exactly a number, text, bytes, None, a list, tuple, dict or set."""
        if type(obj) is Schedule:
            return _schedule, (*obj.id,)
        if obj is _schedule:
            return NotImplemented
        raise _NotPlain


def _schedule(node: str, in_init: bool, number: int) -> Schedule:
    """Stands in the bytes for a schedule; which one it is only a task knows."""
    raise pickle.UnpicklingError("a processor's attributes can only be read by its task")


class _Unpickler(pickle.Unpickler):
    """Reads what _Pickler wrote."""

    def __init__(self, data: bytes, find: Callable[[ScheduleId], Schedule]) -> None:
        super().__init__(io.BytesIO(data))
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        """The only function in the bytes, which finds a schedule again."""
        return lambda *id: self._find(ScheduleId(*id))


def _dumped(value: object) -> bytes:
    data = io.BytesIO()
    _Pickler(data, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return data.getvalue()
