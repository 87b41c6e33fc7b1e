"""`KTable`: the latest value per key, as a stream of changes; and tables grouped anew, and global ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from headwater.dsl import ops
from headwater.dsl.camel import CamelCase
from headwater.dsl.counts import minus_one, plus_one, zero
from headwater.dsl.expression_steps import GroupFunction, as_function, struct
from headwater.dsl.expressions import Expression
from headwater.dsl.graph import GraphNode, LazyStep, StepNode, SuppressNode, TableNode, TableRepartitionNode
from headwater.dsl.ops import Function, Op, View
from headwater.dsl.serde import Int64, Json, Serde
from headwater.dsl.stores import StoreDescription
from headwater.dsl.suppliers import (
    AggregateTable,
    FilterTable,
    MappedTable,
    SourceTable,
    SuppressedTable,
    TableSupplier,
)
from headwater.dsl.suppress import Suppress
from headwater.dsl.topology import StoreSpec
from headwater.errors import TopologyError

if TYPE_CHECKING:
    from headwater.dsl.drawing import Drawing, Materialized
    from headwater.dsl.stream import KStream


class KTable(CamelCase):
    """A table; every method returns a new table or stream and leaves this one as it is."""

    def __init__(
        self,
        drawing: Drawing,
        node: GraphNode,
        name: str,
        key: Serde | None,
        value: Serde | None,
        sources: frozenset[str],
        supplier: TableSupplier,
    ) -> None:
        self._drawing = drawing
        self._node = node
        self._name = name
        self._key = key
        self._value = value
        self._sources = sources
        self._supplier = supplier
        self._sends_old = False

    @property
    def store_name(self) -> str | None:
        """The name under which its rows can be queried; None if it is not materialized."""
        return self._supplier.store

    def view(self) -> View:
        """How another operator reads this table's rows."""
        return self._supplier.view()

    def enable_old(self, force: bool) -> bool:
        """Make the table send old values along; False if that would need a store and none is forced."""
        self._sends_old = self._sends_old or self._supplier.enable_old(force)
        return self._sends_old

    def filter(
        self,
        predicate: Function | Expression,
        *,
        store: str | StoreDescription | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The rows for which `predicate(key, value)` holds; a row that stops passing is deleted.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.table("stock", store="s").filter(lambda key, n: n < 5, store="low").to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("stock").send("tea", 3, at=0)
        ...     driver.input("stock").send("tea", 9, at=1)
        ...     [record.value for record in driver.output("out").read_all()]
        [3, None]
        """
        return self._filter(predicate, False, store, value, name)

    def filter_not(
        self,
        predicate: Function | Expression,
        *,
        store: str | StoreDescription | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The rows for which `predicate(key, value)` does not hold.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> low = builder.table("stock").filter_not(lambda key, n: n < 5, store="enough")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("stock").send("tea", 9, at=0)
        ...     list(driver.store("enough").all())
        [('tea', 9)]
        """
        return self._filter(predicate, True, store, value, name)

    def _filter(
        self,
        predicate: Function | Expression,
        negate: bool,
        store: str | StoreDescription | None,
        value: Serde | None,
        name: str | None,
    ) -> KTable:
        drawing = self._drawing
        condition = as_function(predicate, predicate=True, timestamps=False)
        settles_versions = store is not None or value is not None
        spec, value = self._result("KTABLE-FILTER-", store, value, self._value)
        name = drawing.named(name, "KTABLE-FILTER-")
        drawing.check(name, condition, 2)
        table = FilterTable(self, condition, negate, spec)
        return self._derived(name, table, value, settles_versions)

    def map_values(
        self,
        f: Function | Expression,
        *,
        store: str | StoreDescription | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The rows with `f(value)`, or `f(key, value)`, as their value; deletions pass unseen by `f`.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.table("users").map_values(lambda user: user["city"]).to_stream().to("cities")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("users").send("ann", {"city": "Rome"}, at=0)
        ...     [record.value for record in driver.output("cities").read_all()]
        ['Rome']
        """
        return self._map(as_function(f, timestamps=False), store, value, name)

    def select(
        self,
        *columns: str | Expression,
        store: str | StoreDescription | Expression | None = None,
        value: Serde | Expression | None = None,
        name: str | Expression | None = None,
        **named: Expression,
    ) -> KTable:
        """The rows with a dict of exactly these fields as their value; deletions stay deletions.

        `store=`, `value=` and `name=` are those of `map_values`, unless they are expressions: then they are fields.

        >>> from headwater import StreamsBuilder, TopologyTestDriver, col
        >>> builder = StreamsBuilder()
        >>> builder.table("users").select("name", city=col("address.city")).to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("users").send("u1", {"name": "ann", "address": {"city": "Rome"}}, at=0)
        ...     driver.output("out").read_all()[0].value
        {'name': 'ann', 'city': 'Rome'}
        """
        return self._select("select", columns, {"store": store, "value": value, "name": name}, named, keep=False)

    def with_columns(
        self,
        *columns: str | Expression,
        store: str | StoreDescription | Expression | None = None,
        value: Serde | Expression | None = None,
        name: str | Expression | None = None,
        **named: Expression,
    ) -> KTable:
        """The rows with these fields added to their value, or put in place of those it has; deletions stay deletions.

        `store=`, `value=` and `name=` are those of `map_values`, unless they are expressions: then they are fields.

        >>> from headwater import StreamsBuilder, TopologyTestDriver, col
        >>> builder = StreamsBuilder()
        >>> builder.table("stock").with_columns(low=col("n") < 5).to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("stock").send("tea", {"n": 3}, at=0)
        ...     driver.output("out").read_all()[0].value
        {'n': 3, 'low': True}
        """
        return self._select("with_columns", columns, {"store": store, "value": value, "name": name}, named, keep=True)

    def _select(
        self,
        method: str,
        columns: tuple[str | Expression, ...],
        options: dict[str, Any],
        named: dict[str, Expression],
        keep: bool,
    ) -> KTable:
        fields = {option: given for option, given in options.items() if isinstance(given, Expression)}
        f, faults = struct(method, columns, {**named, **fields}, keep=keep)
        as_function(Expression(f.node), timestamps=False)
        options.update(dict.fromkeys(fields))
        return self._map(f, **options, inherited=Json(), faults=faults)

    def _map(
        self,
        f: Function,
        store: str | StoreDescription | None,
        value: Serde | None,
        name: str | None,
        inherited: Serde | None = None,
        faults: Iterable[str] = (),
    ) -> KTable:
        drawing = self._drawing
        settles_versions = store is not None or value is not None
        spec, value = self._result("KTABLE-MAPVALUES-", store, value, inherited)
        name = drawing.named(name, "KTABLE-MAPVALUES-")
        for fault in faults:
            drawing.fault(name, fault)
        table = MappedTable(self, f, drawing.keyed(name, f, 1), spec)
        return self._derived(name, table, value, settles_versions)

    def to_stream(self, f: Function | Expression | None = None, *, name: str | None = None) -> KStream:
        """The table's changes as a stream, deletions as null values; with `f` under the key `f(key, value)`.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.table("users").to_stream().to("changes")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("users").send("ann", "Rome", at=0)
        ...     driver.input("users").send("ann", None, at=1)
        ...     [record.value for record in driver.output("changes").read_all()]
        ['Rome', None]
        """
        from headwater.dsl.stream import KStream

        name = self._drawing.named(name, "KTABLE-TOSTREAM-")
        node = StepNode(name, ops.ToStream())
        self._drawing.add(self._node, node)
        stream = KStream(self._drawing, node, name, self._key, self._value, self._sources, False)
        return stream if f is None else stream.select_key(f)

    def suppress(self, suppress: Suppress, *, name: str | None = None) -> KTable:
        """Hold changes back: until their window closes, or for a time or number of records.

        Only records move its clock: nothing is emitted until a later one arrives.

        >>> from datetime import timedelta
        >>> from headwater import StreamsBuilder, Suppress, TimeWindows, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> (builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1)))
        ...     .count().suppress(Suppress.until_window_closes()).to_stream().to("out"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     for at in (0, 500, 1000):
        ...         driver.input("in").send("k", "x", at=at)
        ...     [(record.key.start, record.value) for record in driver.output("out").read_all()]
        [(0, 2)]
        """
        if not isinstance(suppress, Suppress):
            raise TopologyError([f"{self!r}: suppress() takes Suppress.until_...(), not {suppress!r}"])
        drawing = self._drawing
        given, name = drawing.text("name=", name), name if name is not None else drawing.new_name("KTABLE-SUPPRESS-")
        if given is not None:
            store = f"{given}-store"
        else:
            store = drawing.new_name("KTABLE-SUPPRESS-STATE-STORE-")
            drawing.note_unnamed(store)
        grace_ms = self._window_grace(name) if suppress.kind == "window-closes" else 0
        key, value = self._key or drawing.default_key, self._value or drawing.default_value
        buffer = StoreSpec("suppressed", store, key, value)
        table = SuppressedTable(self, suppress, grace_ms, buffer)
        node = SuppressNode(name, table)
        node.output_versioned = False
        drawing.add(self._node, node)
        return KTable(drawing, node, name, self._key, self._value, self._sources, table)

    def _window_grace(self, step: str) -> int:
        def search(node: GraphNode) -> int | None:
            if node.grace_ms is not None:
                return node.grace_ms
            graces = [search(parent) for parent in node.parents]
            known = [grace for grace in graces if grace is not None]
            return max(known) if known and len(known) == len(graces) else None

        grace = search(self._node)
        if grace is None:
            self._drawing.fault(
                step, "Suppress.until_window_closes() needs a windowed aggregate above it; there is none on some way up"
            )
        return grace or 0

    def group_by(
        self,
        f: Function | Expression,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KGroupedTable:
        """Group the rows anew by the pair `f(key, value)`, or by an expression, through a repartition topic.

        When a row changes, its old value is taken out of its old group and the new one added to its new group.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> per_city = builder.table("users").group_by(lambda user, city: (city, user)).count(store="per-city")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("users").send("ann", "Rome", at=0)
        ...     driver.input("users").send("ann", "Oslo", at=1)
        ...     list(driver.store("per-city").all())
        [('Oslo', 1), ('Rome', 0)]
        """
        drawing = self._drawing
        if isinstance(f, Expression):
            f = GroupFunction(as_function(f, timestamps=False))
        step = drawing.named(name, "KTABLE-SELECT-")
        drawing.check(step, f, 2)
        node = LazyStep(step, lambda versioned: ops.TableGroupBy(f, versioned))
        drawing.add(self._node, node)
        self.enable_old(True)
        return KGroupedTable(drawing, node, key, value, name)

    def join(
        self,
        other: KTable,
        joiner: Function,
        *,
        foreign_key: Function | Expression | None = None,
        store: str | StoreDescription | None = None,
        value: Serde | None = None,
        name: str | None = None,
        partitioner: Callable[..., int | None] | None = None,
        other_partitioner: Callable[..., int | None] | None = None,
    ) -> KTable:
        """The rows of both tables with the same key, joined; with `foreign_key=f(value)`, the other's row under it.

        The result changes when either side does; its timestamp is the later of the two.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> orders, users = builder.table("orders"), builder.table("users")
        >>> _ = orders.join(
        ...     users, lambda order, city: f"{order['n']} to {city}", foreign_key=lambda o: o["user"], store="j")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("orders").send("o1", {"user": "ann", "n": 2}, at=0)
        ...     driver.input("users").send("ann", "Rome", at=1)
        ...     driver.store("j").get("o1")
        '2 to Rome'
        """
        return self._join(other, joiner, "inner", foreign_key, store, value, name, partitioner, other_partitioner)

    def left_join(
        self,
        other: KTable,
        joiner: Function,
        *,
        foreign_key: Function | Expression | None = None,
        store: str | StoreDescription | None = None,
        value: Serde | None = None,
        name: str | None = None,
        partitioner: Callable[..., int | None] | None = None,
        other_partitioner: Callable[..., int | None] | None = None,
    ) -> KTable:
        """Like `join`, and `joiner(left, None)` for rows without a match.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("a").left_join(builder.table("b"), lambda a, b: [a, b], store="j")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("a").send("k", 1, at=0)
        ...     driver.store("j").get("k")
        [1, None]
        """
        return self._join(other, joiner, "left", foreign_key, store, value, name, partitioner, other_partitioner)

    def outer_join(
        self,
        other: KTable,
        joiner: Function,
        *,
        store: str | StoreDescription | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """Like `join`, with None for a missing side.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("a").outer_join(builder.table("b"), lambda a, b: [a, b], store="j")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("b").send("k", 2, at=0)
        ...     driver.store("j").get("k")
        [None, 2]
        """
        return self._join(other, joiner, "outer", None, store, value, name, None, None)

    def _join(
        self,
        other: KTable,
        joiner: Function,
        kind: Literal["inner", "left", "outer"],
        foreign_key: Function | Expression | None,
        store: str | StoreDescription | None,
        value: Serde | None,
        name: str | None,
        partitioner: Callable[..., int | None] | None,
        other_partitioner: Callable[..., int | None] | None,
    ) -> KTable:
        from headwater.dsl.foreign_key import join_foreign
        from headwater.dsl.joins import join_tables

        if not isinstance(other, KTable):
            raise TopologyError([f"{self!r}: a table joins another KTable, not {other!r}"])
        self._drawing.check_own(self._name, other)
        foreign = as_function(foreign_key, timestamps=False)
        if foreign_key is None and (partitioner is not None or other_partitioner is not None):
            raise TopologyError([f"{self!r}: partitioner= and other_partitioner= are for joins with foreign_key="])
        if foreign_key is None:
            return join_tables(self, other, joiner, kind, store, value, name)
        return join_foreign(
            self, other, joiner, foreign, kind == "left", store, value, name, partitioner, other_partitioner
        )

    def _result(
        self, prefix: str, store: str | StoreDescription | None, value: Serde | None, inherited: Serde | None
    ) -> tuple[StoreSpec | None, Serde | None]:
        """The store (if one was named) and value serde of a step that need not be materialized."""
        drawing = self._drawing
        if store is None and value is None:
            return None, inherited
        materialized = drawing.materialized(store, prefix, self._key, value)
        value = materialized.value or inherited
        if not materialized.queryable:
            return None, value
        spec = materialized.key_value(self._key or drawing.default_key, value or drawing.default_value)
        return spec, value

    def _derived(self, name: str, table: TableSupplier, value: Serde | None, settles_versions: bool) -> KTable:
        node = TableNode(name, table)
        if settles_versions:
            # A serde alone, without a store, makes a table that hides its parent's versions from the next steps.
            node.output_versioned = table.spec is not None and table.spec.kind == "versioned"
        self._drawing.add(self._node, node)
        return KTable(self._drawing, node, name, self._key, value, self._sources, table)

    def __repr__(self) -> str:
        return f"KTable({self._name})"


class KGroupedTable(CamelCase):
    """A table's rows grouped anew."""

    def __init__(
        self, drawing: Drawing, node: GraphNode, key: Serde | None, value: Serde | None, given: str | None
    ) -> None:
        self._drawing = drawing
        self._node = node
        self._key = key
        self._value = value
        self._given = given
        self._repartition_node: TableRepartitionNode | None = None

    def count(self, *, store: str | StoreDescription | None = None, name: str | None = None) -> KTable:
        """The number of rows per group; a group that empties stays at 0.

        >>> from headwater import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.table("users").group_by(lambda user, city: (city, user)).count(name="per-city")
        KTable(per-city)
        """
        materialized = self._drawing.materialized(store, "KTABLE-AGGREGATE-", self._key, Int64())
        return self._aggregate("KTABLE-AGGREGATE-", materialized, name, zero, plus_one, minus_one)

    def reduce(
        self,
        add: Function,
        subtract: Function,
        *,
        store: str | StoreDescription | None = None,
        name: str | None = None,
    ) -> KTable:
        """The rows per group, folded by `add(aggregate, value)` and undone by `subtract(aggregate, value)`.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> from operator import add, sub
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("stock").group_by(lambda k, n: (k[0], n)).reduce(add, sub, store="sums")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("stock").send("tea", 3, at=0)
        ...     driver.input("stock").send("tea", 5, at=1)
        ...     driver.store("sums").get("t")
        5
        """
        materialized = self._drawing.materialized(store, "KTABLE-AGGREGATE-", self._key, self._value)
        return self._aggregate("KTABLE-REDUCE-", materialized, name, None, add, subtract)

    def aggregate(
        self,
        init: Function,
        add: Function,
        subtract: Function,
        *,
        store: str | StoreDescription | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The rows per group, folded by `add(key, value, aggregate)` and undone by `subtract(key, value, aggregate)`.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> _ = builder.table("stock").group_by(lambda k, n: (k[0], n)).aggregate(
        ...     lambda: 0, lambda k, n, total: total + n, lambda k, n, total: total - n, store="sums")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("stock").send("tea", 3, at=0)
        ...     driver.input("stock").send("toast", 5, at=1)
        ...     driver.store("sums").get("t")
        8
        """
        materialized = self._drawing.materialized(store, "KTABLE-AGGREGATE-", self._key, value)
        return self._aggregate("KTABLE-AGGREGATE-", materialized, name, init, add, subtract)

    def _aggregate(
        self,
        prefix: str,
        materialized: Materialized,
        name: str | None,
        init: Function | None,
        add: Function,
        subtract: Function,
    ) -> KTable:
        drawing = self._drawing
        sink = drawing.suffixed(name, "-sink", "KSTREAM-SINK-")
        source = drawing.suffixed(name, "-source", "KSTREAM-SOURCE-")
        step = drawing.named(name, prefix)
        if init is not None:
            drawing.check(step, init, 0)
        for f in (add, subtract):
            drawing.check(step, f, 3 if init is not None else 2)
        stem = self._given if self._given is not None else materialized.name
        if self._given is None and not materialized.queryable:
            drawing.note_unnamed(f"{stem}-repartition")
        key, value = self._key or drawing.default_key, self._value or drawing.default_value
        if self._repartition_node is None or self._given is None:
            self._repartition_node = TableRepartitionNode(f"{stem}-repartition", sink, source, key, value)
        drawing.add(self._node, self._repartition_node)
        spec = materialized.key_value(key, drawing.default_value)

        def make(store: str, send_old: bool) -> Op:
            return ops.TableAggregate(store, init, add, subtract, send_old)

        table = AggregateTable(spec, make)
        node = TableNode(step, table)
        node.output_versioned = materialized.versioned
        drawing.add(self._repartition_node, node)
        sources = frozenset({self._repartition_node.name})
        return KTable(drawing, node, step, materialized.key, materialized.value, sources, table)


class GlobalKTable:
    """A table that every task holds whole; streams join it by any key."""

    def __init__(self, drawing: Drawing, supplier: SourceTable) -> None:
        self._drawing = drawing
        self._supplier = supplier

    @property
    def store_name(self) -> str | None:
        """The name under which its rows can be queried."""
        return self._supplier.store

    def view(self) -> View:
        """How a join reads its rows."""
        return self._supplier.view()
