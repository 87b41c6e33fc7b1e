"""The workers of the applications on a cluster, as one hears of them who is none of them: where they answer. It owns
which applications there are; who is alive is the roster's to say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from headwater.streams.kafka.cluster import Cluster
from headwater.streams.kafka.roster import Roster, workers_topic

__all__ = ["Workers"]

# How long, in seconds, the first look waits for what the topics say.
PATIENCE = 10.0


class Workers:
    """Those of one application, or of all that have a topic for them."""

    def __init__(self, settings: Mapping[str, Any], app_id: str | None = None) -> None:
        suffix = workers_topic("")
        there = [topic.removesuffix(suffix) for topic in Cluster(settings).topics() if topic.endswith(suffix)]
        apps = sorted(there) if app_id is None else [app for app in there if app == app_id]
        self._rosters = {app: Roster(settings, app) for app in apps}
        give_up = time.monotonic() + PATIENCE
        while not all(roster.known for roster in self._rosters.values()) and time.monotonic() < give_up:
            self._poll()
            time.sleep(0.01)

    def _poll(self) -> None:
        for roster in self._rosters.values():
            roster.poll()

    def endpoints(self) -> dict[str, list[str | None]]:
        """Where each live worker answers questions, None for one that does not, by application."""
        self._poll()
        found = {app: [said.endpoint for said in roster.live().values()] for app, roster in self._rosters.items()}
        return {app: endpoints for app, endpoints in found.items() if endpoints}

    def close(self) -> None:
        """Stop to listen."""
        for roster in self._rosters.values():
            roster.close()
