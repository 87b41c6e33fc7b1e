"""The record of what an application is, in its directory on this machine: `identity`, a document as the log's own. It
owns that file, and what can be known of an application whose directory has none because an earlier version of Headwater
made it: that left the description of its topology, and the directories of its tasks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from headwater.errors import StateError, StreamsError
from headwater.state.log import REAL_FILES, Files, documents
from headwater.streams.identity import Fit, Identity, compare, first, from_description

__all__ = ["IDENTITY", "LogRecord", "announce", "is_another"]

log = logging.getLogger("headwater")

IDENTITY = "identity"
# What an earlier version left instead.
_DESCRIPTION = "topology.txt"
_TASK = re.compile(r"(\d+)_(\d+)")


class LogRecord:
    """The record in an application's directory."""

    def __init__(self, directory: Path, app_id: str, files: Files = REAL_FILES) -> None:
        self.path = directory / IDENTITY
        self._directory = directory
        self._app_id = app_id
        self._files = files

    def load(self) -> Identity | None:
        """What is recorded, or what is left of an application that has run; None if there is nothing."""
        try:
            found = documents.load(self._files, self.path, IDENTITY, Identity)
        except FileNotFoundError:
            return self._from_earlier_version()
        if found.app_id != self._app_id:
            raise StateError(
                f"{self.path} is the record of the application {found.app_id!r}, not of {self._app_id!r}: restore it "
                "from a copy, or give another id (--app-id)."
            )
        return found

    def _from_earlier_version(self) -> Identity | None:
        tasks: dict[int, int] = {}
        place = self._directory / "tasks"
        for path in place.iterdir() if place.exists() else ():
            if (found := _TASK.fullmatch(path.name)) is not None:
                number, partition = int(found[1]), int(found[2])
                tasks[number] = max(tasks.get(number, 0), partition + 1)
        try:
            described = (self._directory / _DESCRIPTION).read_text(errors="replace")
        except FileNotFoundError:
            if self.path.exists():
                # Another worker has written it just now, and has made its tasks.
                return documents.load(self._files, self.path, IDENTITY, Identity)
            if tasks:
                raise StateError(
                    f"{place} has state, but {self.path}, which says what it is the state of, is missing: restore it "
                    "from a copy, or reset the application to begin anew (headwater reset)."
                ) from None
            return None
        return from_description(self._app_id, described, tasks)

    def compared(self, now: Identity, renamed: Mapping[str, str | None] | None) -> Fit:
        """What fits; nothing is changed."""
        before = self.load()
        return first(now) if before is None else compare(before, now, renamed)

    def keep(self, now: Identity, renamed: Mapping[str, str | None] | None) -> Identity:
        """Compare, and record what fits from now on."""
        before = self.load()
        fit = first(now) if before is None else compare(before, now, renamed)
        if fit.identity != before or not self.path.exists():
            if before is not None:
                announce(fit)
            self.store(fit.identity)
        return fit.identity

    def load_if_sound(self) -> Identity | None:
        """What is recorded, None if that cannot be read: for a reset, which is the remedy then."""
        try:
            return self.load()
        except StreamsError as error:
            log.warning("%s", error)
            return None

    def remove(self) -> None:
        """Forget what the application was."""
        for name in (IDENTITY, _DESCRIPTION):
            (self._directory / name).unlink(missing_ok=True)

    def store(self, identity: Identity) -> None:
        """Replace the record."""
        self._files.make_directory(self._directory)
        documents.store(self._files, self.path, IDENTITY, identity)
        # It says all that the description said.
        (self._directory / _DESCRIPTION).unlink(missing_ok=True)


def announce(fit: Fit) -> None:
    """Say which stores are new, gone or renamed."""
    if fit.new:
        log.warning("new stores, which start empty: %s", ", ".join(fit.new))
    if fit.gone:
        log.warning(
            "stores that are gone: %s; their rows are kept aside until `headwater reset --unused`", ", ".join(fit.gone)
        )
    for old, name in fit.renamed:
        log.info("store %s goes on as %s", old, name)


def is_another(app_id: str) -> str:
    """What is said to a worker that may not run beside the others."""
    return (
        f"application {app_id!r} is running with another topology: stop it first, or give this one another id "
        f"(--app-id)"
    )
