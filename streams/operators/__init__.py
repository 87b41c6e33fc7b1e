"""The rules of all operators: importing this package registers them."""

from headwater.streams.operators import (
    aggregates,
    foreign_keys,
    process,
    sessions,
    sinks,
    sliding,
    stateless,
    stream_joins,
    stream_table,
    suppress,
    table_joins,
    tables,
    time_windows,
)

__all__ = [
    "aggregates",
    "foreign_keys",
    "process",
    "sessions",
    "sinks",
    "sliding",
    "stateless",
    "stream_joins",
    "stream_table",
    "suppress",
    "table_joins",
    "tables",
    "time_windows",
]
