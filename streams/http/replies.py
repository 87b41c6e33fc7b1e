"""What is sent back over HTTP: an answer, or why there is none. It owns their shape, JSON but for Prometheus' text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["RETRY", "Refusal", "Reply", "as_json"]

JSON = "application/json"
# For what may pass by itself.
RETRY: Mapping[str, str] = {"Retry-After": "1"}


class Reply(NamedTuple):
    """An answer as it is sent."""

    status: int
    body: bytes
    kind: str = JSON
    headers: Mapping[str, str] = {}


def as_json(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """An answer in JSON.

    >>> as_json({"state": "running"}).body
    b'{"state":"running"}'
    """
    return Reply(status, msgspec.json.encode(content), JSON, headers or {})


class Refusal(Exception):
    """Why there is no answer; `more` are further members of the JSON that says so."""

    def __init__(self, status: int, error: str, headers: Mapping[str, str] | None = None, **more: object) -> None:
        super().__init__(error)
        self.reply = as_json({"error": error, **more}, status, headers)
