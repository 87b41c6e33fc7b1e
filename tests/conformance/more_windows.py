"""More topologies with golden traces (in `more`, made by `oracle`): windows, suppress, emit on close, the record cache,
cogroup, processors, errors, timestamps, stateless and mixed ones. Each trace's description says what it must do."""

from tests.conformance.more_chapters import (
    cached,
    closing,
    cogroup,
    edges,
    errors,
    mixed,
    processors,
    stateless,
    suppress,
    timestamps,
    windows,
)
from tests.conformance.more_chapters.registry import TOPOLOGIES

__all__ = [
    "TOPOLOGIES",
    "cached",
    "closing",
    "cogroup",
    "edges",
    "errors",
    "mixed",
    "processors",
    "stateless",
    "suppress",
    "timestamps",
    "windows",
]
