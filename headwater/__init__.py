"""Kafka Streams for Python: the public names."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from headwater.dsl import aggregates as agg
from headwater.dsl.builder import StreamsBuilder
from headwater.dsl.cogrouped import CogroupedKStream
from headwater.dsl.config import Config, ErrorContext
from headwater.dsl.expressions import (
    Expression,
    coalesce,
    col,
    concat,
    lit,
    record_key,
    record_timestamp,
    record_value,
    when,
)
from headwater.dsl.grouped import KGroupedStream
from headwater.dsl.records import Record, Windowed
from headwater.dsl.serde import Bytes, Float64, Int64, Json, Serde, SessionWindowed, Str, TimeWindowed
from headwater.dsl.stores import KeyValue, Session, TimestampedKeyValue, Versioned, Window
from headwater.dsl.stream import KStream
from headwater.dsl.suppress import Suppress
from headwater.dsl.table import GlobalKTable, KGroupedTable, KTable
from headwater.dsl.timestamps import OnInvalid, SourceRecord
from headwater.dsl.topology import Topology
from headwater.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from headwater.errors import SerdeError, StateError, StreamsError, TopologyError
from headwater.streams.admin import Admin
from headwater.streams.app import App
from headwater.streams.consumer import Consumer
from headwater.streams.context import ProcessorContext
from headwater.streams.driver import TopologyTestDriver
from headwater.streams.processor import Processor
from headwater.streams.producer import Producer
from headwater.streams.run import run

if TYPE_CHECKING:
    from headwater.streams.spark.dataframes import to_dataframes as to_dataframes
    from headwater.streams.spark.query import SparkBackend as SparkBackend
    from headwater.streams.spark.query import SparkQuery as SparkQuery

__version__ = version("headwater")

__all__ = [
    "Admin",
    "App",
    "Bytes",
    "CogroupedKStream",
    "Config",
    "Consumer",
    "ErrorContext",
    "Expression",
    "Float64",
    "GlobalKTable",
    "Int64",
    "JoinWindows",
    "Json",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValue",
    "OnInvalid",
    "Processor",
    "ProcessorContext",
    "Producer",
    "Record",
    "Serde",
    "SerdeError",
    "Session",
    "SessionWindowed",
    "SessionWindows",
    "SlidingWindows",
    "SourceRecord",
    "StateError",
    "Str",
    "StreamsBuilder",
    "StreamsError",
    "Suppress",
    "TimeWindowed",
    "TimeWindows",
    "TimestampedKeyValue",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "UnlimitedWindows",
    "Versioned",
    "Window",
    "Windowed",
    "agg",
    "coalesce",
    "col",
    "concat",
    "lit",
    "record_key",
    "record_timestamp",
    "record_value",
    "run",
    "when",
]


def __getattr__(name: str) -> Any:
    """Look up the names that need Spark, an extra, when they are asked for; `import *` leaves them out."""
    if name in ("SparkBackend", "SparkQuery"):
        from headwater.streams.spark import query

        return getattr(query, name)
    if name == "to_dataframes":
        from headwater.streams.spark.dataframes import to_dataframes

        return to_dataframes
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
