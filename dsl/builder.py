"""`StreamsBuilder`: where a topology begins and ends."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.dsl.camel import CamelCase
from headwater.dsl.config import Optimize, optimizations
from headwater.dsl.drawing import Drawing
from headwater.dsl.graph import (
    GlobalStoreNode,
    SourceNode,
    TableSourceNode,
)
from headwater.dsl.ops import Process
from headwater.dsl.serde import Json, Serde, Str
from headwater.dsl.stores import StoreDescription
from headwater.dsl.suppliers import SourceTable
from headwater.dsl.topology import RESETS, Source, Topology, plain_store
from headwater.errors import TopologyError

if TYPE_CHECKING:
    from headwater.dsl.stream import KStream
    from headwater.dsl.table import GlobalKTable, KTable

log = logging.getLogger("headwater")

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class StreamsBuilder(CamelCase):
    """Builds a topology, step by step.

    >>> from headwater import StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> builder.stream("orders").filter(lambda key, order: order["amount"] > 10).to("large")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.input("orders").send("a", {"amount": 12}, at=0)
    ...     driver.input("orders").send("b", {"amount": 7}, at=1)
    ...     driver.output("large").read_all()
    [Record(key='a', value={'amount': 12}, timestamp=0, headers=())]
    """

    def __init__(self, key: Serde | None = None, value: Serde | None = None) -> None:
        self._drawing = Drawing(key if key is not None else Str(), value if value is not None else Json())
        self._drawing.check_serde("StreamsBuilder", "key=", key)
        self._drawing.check_serde("StreamsBuilder", "value=", value)

    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """The records of a topic, of several, or of all topics a pattern matches, as a stream.

        >>> from headwater import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream(["eu-orders", "us-orders"]).to("orders")
        >>> print(builder.build().describe())  # doctest: +ELLIPSIS
        Topologies:
           Sub-topology: 0
            Source: KSTREAM-SOURCE-0000000000 (topics: [us-orders, eu-orders])
        ...
        """
        from headwater.dsl.stream import KStream

        name = self._drawing.named(name, "KSTREAM-SOURCE-")
        pattern = topics if isinstance(topics, re.Pattern) else None
        names: tuple[str, ...] = ()
        if isinstance(topics, str):
            names = (topics,)
        elif not isinstance(topics, re.Pattern):
            if not isinstance(topics, Iterable):
                raise TopologyError([f"stream() takes a topic, several or a pattern, not {topics!r}"])
            names = tuple(topics)
        if not names and pattern is None:
            self._drawing.fault(name, "stream() needs at least one topic")
        for topic in names:
            self._drawing.check_topic(name, topic)
        self._check_source(name, timestamp, reset, key, value)
        drawing = self._drawing
        own_key, own_value = key or drawing.default_key, value or drawing.default_value
        node = SourceNode(name, names, pattern, own_key, own_value, timestamp, reset)
        drawing.add(drawing.root, node)
        return KStream(self._drawing, node, name, key, value, frozenset({name}), False)

    def table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | StoreDescription | None = None,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """The latest value per key of a topic; a null value deletes, a null key is dropped and counted.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> users = builder.table("users", store="users")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("users").send("ann", "Rome", at=0)
        ...     driver.input("users").send("ann", "Oslo", at=1)
        ...     driver.store("users").get("ann")
        'Oslo'
        """
        from headwater.dsl.table import KTable

        materialized = self._drawing.materialized(store, f"{topic}-", key, value)
        key, value = materialized.key, materialized.value
        source_name, table_name, source = self._table_source(topic, key, value, timestamp, reset, name, False)
        spec = materialized.key_value(source.key, source.value)
        table = SourceTable(spec, materialized.queryable)
        node = TableSourceNode(table_name, source, table)
        node.output_versioned = materialized.versioned
        self._drawing.add(self._drawing.root, node)
        return KTable(self._drawing, node, table_name, key, value, frozenset({source_name}), table)

    def global_table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | StoreDescription | None = None,
        timestamp: Callable[..., int] | None = None,
        name: str | None = None,
    ) -> GlobalKTable:
        """A table that every task holds whole, so that streams may be joined with it by any key.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> rates = builder.global_table("rates")
        >>> builder.stream("prices").join(
        ...     rates, lambda price, rate: price["n"] * rate, select=lambda key, price: price["currency"]).to("euros")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("rates").send("USD", 0.5, at=0)
        ...     driver.input("prices").send("a", {"currency": "USD", "n": 3}, at=1)
        ...     driver.output("euros").read_all()
        [Record(key='a', value=1.5, timestamp=1, headers=())]
        """
        from headwater.dsl.table import GlobalKTable

        materialized = self._drawing.materialized(store, f"{topic}-", key, value)
        key, value = materialized.key, materialized.value
        _, table_name, source = self._table_source(topic, key, value, timestamp, None, name, True)
        if materialized.versioned:
            self._drawing.fault(table_name, "a global table cannot be versioned: use another store, or table()")
        spec = replace(materialized.key_value(source.key, source.value), changelog=False)
        table = SourceTable(spec, True)
        self._drawing.add(self._drawing.root, TableSourceNode(table_name, source, table))
        return GlobalKTable(self._drawing, table)

    def add_store(self, spec: StoreDescription) -> StreamsBuilder:
        """Add a store for processors that name it in `stores=`.

        >>> from headwater import KeyValue, Processor, StreamsBuilder, TopologyTestDriver
        >>> class Remember(Processor):
        ...     def process(self, record):
        ...         self.context.store("last").put(record.key, record.value)
        >>> builder = StreamsBuilder().add_store(KeyValue("last"))
        >>> _ = builder.stream("in").process(Remember, stores=["last"])
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        ...     driver.store("last").get("k")
        1
        """
        if not isinstance(spec, StoreDescription):
            raise TopologyError([f"add_store() takes a store description such as KeyValue('name'), not {spec!r}"])
        self._drawing.shared_store(spec)
        return self

    def add_global_store(
        self,
        spec: StoreDescription,
        topic: str,
        processor: Callable[[], Any],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Callable[..., int] | None = None,
        reset: str | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every task sees whole, kept by the processor from the topic's records.

        >>> from headwater import KeyValue, Processor, StreamsBuilder, TopologyTestDriver
        >>> class Keep(Processor):
        ...     def process(self, record):
        ...         self.context.store("rates").put(record.key, record.value * 2)
        >>> builder = StreamsBuilder().add_global_store(KeyValue("rates"), "rates", Keep)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("rates").send("USD", 2, at=0)
        ...     driver.store("rates").get("USD")
        4
        """
        _, processor_name, source = self._table_source(topic, key, value, timestamp, reset, name, True)
        store = self._drawing.collect(lambda: plain_store(spec, source.key, source.value))
        self._drawing.check_supplier(processor_name, processor)
        if store is not None:
            store = replace(store, changelog=False)
            op = Process(processor, stores=(store.name,))
            self._drawing.add(self._drawing.root, GlobalStoreNode(store, source, processor_name, op))
        return self

    def build(self, optimize: Optimize = False) -> Topology:
        """The finished topology; a TopologyError lists every fault at once.

        `optimize=True` applies all of Kafka Streams' optimisations, or name some: "reuse-source-topics",
        "merge-repartition-topics", "self-join". They change the names of internal topics.

        >>> from headwater import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").filter(lambda value: True, name="wrong").to("out")
        >>> builder.build()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        headwater.errors.TopologyError: The topology has 1 fault:
          1. wrong: ...: the callable must take 2 parameters, but takes (value)
        """
        return self._drawing.build(optimizations(optimize))

    def _table_source(
        self,
        topic: str,
        key: Serde | None,
        value: Serde | None,
        timestamp: Callable[..., int] | None,
        reset: str | None,
        name: str | None,
        is_global: bool,
    ) -> tuple[str, str, Source]:
        source_name = self._drawing.suffixed(name, "-source", "KSTREAM-SOURCE-")
        table_name = self._drawing.named(name, "KTABLE-SOURCE-")
        self._drawing.check_topic(table_name, topic)
        self._check_source(table_name, timestamp, reset, key, value)
        key, value = key or self._drawing.default_key, value or self._drawing.default_value
        return source_name, table_name, Source(source_name, (topic,), None, key, value, timestamp, reset, is_global)

    def _check_source(
        self, step: str, timestamp: object, reset: str | None, key: Serde | None, value: Serde | None
    ) -> None:
        self._drawing.check_serde(step, "key=", key)
        self._drawing.check_serde(step, "value=", value)
        if timestamp is not None:
            self._drawing.check(step, timestamp, 2)
        if reset is not None and reset not in RESETS:
            self._drawing.fault(step, f"reset= must be one of {', '.join(RESETS)}, not {reset!r}")
