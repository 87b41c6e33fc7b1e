"""A worker's place on its machine: a directory for its state that no other worker uses, and the name it goes by. It
owns the lock files; the state in the directory is others'.

Workers of one application on one machine take the first slot that is free: `<state>/apps/<application>/slots/<number>`.
A worker that is started again finds its state, and the transactions that it left open, under the same name; one that is
stopped but not dead (SIGSTOP) keeps its slot, since the kernel holds the lock.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Slot", "take_slot"]


@dataclass
class Slot:
    """A directory that is this worker's alone, until it is released."""

    number: int
    directory: Path
    id: str
    _lock: int

    def release(self) -> None:
        """Let another worker have it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def take_slot(directory: Path) -> Slot:
    """Take the first slot in a directory that is free."""
    for number in itertools.count():
        slot = directory / str(number)
        slot.mkdir(parents=True, exist_ok=True)
        lock = os.open(slot / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        # The lock's own text: names must not repeat on other machines, nor change when the worker is started again.
        name = os.pread(lock, 64, 0).decode(errors="replace")
        if len(name) != 16:
            name = secrets.token_hex(8)
            os.ftruncate(lock, 0)
            os.pwrite(lock, name.encode(), 0)
        return Slot(number, slot, name, lock)
    raise AssertionError("numbers do not end")
