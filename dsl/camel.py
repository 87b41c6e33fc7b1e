"""Kafka Streams' camelCase spellings at run time, so that code carried over from Java finds the snake_case methods. It
owns the table of known names; type checkers see the snake_case methods only."""

import difflib
from typing import TYPE_CHECKING, Any

__all__ = ["CamelCase"]

# Kafka Streams' method names; one resolves only on a class that has the method it stands for.
_KAFKA = {
    "addGlobalStore": "add_global_store",
    "addProcessor": "add_processor",
    "addSink": "add_sink",
    "addSource": "add_source",
    "addStateStore": "add_store",
    "advanceWallClockTime": "advance",
    "createInputTopic": "input",
    "createOutputTopic": "output",
    "defaultBranch": "default",
    "emitStrategy": "emit_strategy",
    "fetchAll": "fetch_all",
    "filterNot": "filter_not",
    "findSessions": "find_sessions",
    "flatMap": "flat_map",
    "flatMapValues": "flat_map_values",
    "getKeyValueStore": "store",
    "getSessionStore": "store",
    "getStateStore": "store",
    "getTimestampedKeyValueStore": "store",
    "getTimestampedWindowStore": "store",
    "getVersionedKeyValueStore": "store",
    "getWindowStore": "store",
    "globalTable": "global_table",
    "groupBy": "group_by",
    "groupByKey": "group_by_key",
    "leftJoin": "left_join",
    "mapValues": "map_values",
    "noDefaultBranch": "no_default",
    "outerJoin": "outer_join",
    "pipeInput": "send",
    "prefixScan": "prefix_scan",
    "processValues": "process_values",
    "putAll": "put_all",
    "putIfAbsent": "put_if_absent",
    "readRecordsToList": "read_all",
    "reverseAll": "reverse_all",
    "reverseRange": "reverse_range",
    "selectKey": "select_key",
    "toStream": "to_stream",
    "toTable": "to_table",
    "windowedBy": "windowed_by",
}


class CamelCase:
    """Resolves Kafka Streams' method names to those of this class; any other name is an AttributeError with a hint."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The method that Kafka Streams calls `name`."""
            kind = type(self)
            method = _KAFKA.get(name)
            if method is not None and hasattr(kind, method):
                return getattr(self, method)
            message = f"{kind.__name__!r} object has no attribute {name!r}"
            # copy, pickle and the like probe private names, often on objects that are only half made.
            if not name.startswith("_"):
                message += _hint(kind, name)
            raise AttributeError(message)


def _hint(kind: type, name: str) -> str:
    public = [known for known in dir(kind) if not known.startswith("_")]
    spellings = public + [camel for camel, method in _KAFKA.items() if method in public]
    close = difflib.get_close_matches(name, spellings, n=1)
    return f": did you mean {close[0]!r}?" if close else ""
