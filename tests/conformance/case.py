"""A case: what a topology of the registry is given. Owns the record of effects; knows nothing of traces or drivers."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

# By case, not in the case: a task rebuilt from pickled bytes holds a copy of its case, and every copy's effects count.
_RECORDED: dict[str, list[str]] = {}


class Case:
    """The trace's `config`, and a place for effects that all pickled copies of the case in one process share."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        self._id = uuid4().hex
        self._prefix: str | None = None

    def print_effects(self, prefix: str) -> None:
        """Print effects from now on, in one line each: what is printed comes back from other processes."""
        self._prefix = prefix

    def effect(self, text: str) -> None:
        """Record one effect."""
        if self._prefix is not None:
            print(self._prefix + json.dumps(text))
            return
        _RECORDED.setdefault(self._id, []).append(text)

    def take_effects(self) -> list[str]:
        """Return the effects recorded since the last call, in order, and forget them."""
        return _RECORDED.pop(self._id, [])
