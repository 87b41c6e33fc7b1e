"""`KStream`: an endless sequence of records, each an event of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

from headwater.dsl import ops
from headwater.dsl.camel import CamelCase
from headwater.dsl.expression_steps import as_function, struct
from headwater.dsl.expressions import Expression
from headwater.dsl.graph import GraphNode, SinkNode, StepNode, TableNode
from headwater.dsl.ops import Function, Op
from headwater.dsl.options import number_fault
from headwater.dsl.serde import Json, Serde
from headwater.dsl.stores import StoreDescription, Window
from headwater.dsl.suppliers import SourceTable
from headwater.dsl.windows import JoinWindows
from headwater.errors import TopologyError

if TYPE_CHECKING:
    from headwater.dsl.drawing import Drawing
    from headwater.dsl.grouped import KGroupedStream
    from headwater.dsl.split import Branches
    from headwater.dsl.table import GlobalKTable, KTable


Stores = str | StoreDescription | Iterable[str | StoreDescription]


class KStream(CamelCase):
    """A stream of records; every method returns a new stream and leaves this one as it is."""

    def __init__(
        self,
        drawing: Drawing,
        node: GraphNode,
        name: str,
        key: Serde | None,
        value: Serde | None,
        sources: frozenset[str],
        repartition: bool,
    ) -> None:
        self._drawing = drawing
        self._node = node
        self._name = name
        self._key = key
        self._value = value
        self._sources = sources
        self._repartition = repartition  # whether the key has changed since the last topic
        self._join_repartition: GraphNode | None = None

    def _step(
        self,
        prefix: str,
        name: str | None,
        make: Callable[[str], Op],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        changes_key: bool = False,
        changes_value: bool = False,
        connect: tuple[str, ...] = (),
    ) -> KStream:
        name = self._drawing.named(name, prefix)
        node = StepNode(name, make(name), connect=connect)
        node.key_changing, node.value_changing = changes_key, changes_value
        self._drawing.add(self._node, node)
        return KStream(self._drawing, node, name, key, value, self._sources, self._repartition or changes_key)

    def _checked(
        self, f: Function, positional: int, make: Callable[[Function], Op], *, iterates: bool = False
    ) -> Callable[[str], Op]:
        def made(step: str) -> Op:
            self._drawing.check(step, f, positional, iterates=iterates)
            return make(f)

        return made

    # ---- stateless ---------------------------------------------------------------------------------------------

    def filter(self, predicate: Function | Expression, *, name: str | None = None) -> KStream:
        """Emit each record for which `predicate(key, value)`, or an expression, holds.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").filter(lambda key, value: value > 1).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("a", 1, at=0)
        ...     driver.input("in").send("b", 2, at=1)
        ...     [record.key for record in driver.output("out").read_all()]
        ['b']
        """
        make = self._checked(as_function(predicate, predicate=True), 2, lambda f: ops.Filter(f))
        return self._step("KSTREAM-FILTER-", name, make, key=self._key, value=self._value)

    def filter_not(self, predicate: Function | Expression, *, name: str | None = None) -> KStream:
        """Emit each record for which `predicate(key, value)` does not hold.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").filter_not(lambda key, value: value > 1).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("a", 1, at=0)
        ...     driver.input("in").send("b", 2, at=1)
        ...     [record.key for record in driver.output("out").read_all()]
        ['a']
        """
        make = self._checked(as_function(predicate, predicate=True), 2, lambda f: ops.Filter(f, negate=True))
        return self._step("KSTREAM-FILTER-", name, make, key=self._key, value=self._value)

    def map(self, f: Function, *, name: str | None = None) -> KStream:
        """Emit the pair `f(key, value)`; a grouping or join below repartitions.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").map(lambda key, value: (value["user"], value["n"])).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("a", {"user": "ann", "n": 3}, at=0)
        ...     driver.output("out").read_all()
        [Record(key='ann', value=3, timestamp=0, headers=())]
        """
        return self._step("KSTREAM-MAP-", name, self._checked(f, 2, ops.Map), changes_key=True)

    def map_values(self, f: Function | Expression, *, name: str | None = None) -> KStream:
        """Emit the record with `f(value)`, or `f(key, value)`, or an expression's result, as its value.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").map_values(lambda value: value * 2).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("a", 21, at=0)
        ...     driver.output("out").read_all()
        [Record(key='a', value=42, timestamp=0, headers=())]
        """
        function = as_function(f)
        return self._step(
            "KSTREAM-MAPVALUES-",
            name,
            lambda step: ops.MapValues(function, self._drawing.keyed(step, function, 1)),
            key=self._key,
            changes_value=True,
        )

    def select(
        self, *columns: str | Expression, name: str | Expression | None = None, **named: Expression
    ) -> KStream:
        """Emit the record with a dict of exactly these fields as its value; a null value stays null.

        `name=` is the step's name, unless it is an expression: then it is a field.

        >>> from headwater import StreamsBuilder, TopologyTestDriver, col
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").select("user", total=col("amount") * 2).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", {"user": "ann", "amount": 21, "note": "-"}, at=0)
        ...     driver.output("out").read_all()[0].value
        {'user': 'ann', 'total': 42}
        """
        return self._select("select", columns, name, named, keep=False)

    def with_columns(
        self, *columns: str | Expression, name: str | Expression | None = None, **named: Expression
    ) -> KStream:
        """Emit the record with these fields added to its value, or put in place of those it has; null stays null.

        `name=` is the step's name, unless it is an expression: then it is a field.

        >>> from headwater import StreamsBuilder, TopologyTestDriver, col
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").with_columns(total=col("amount") * 2).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", {"amount": 21}, at=0)
        ...     driver.output("out").read_all()[0].value
        {'amount': 21, 'total': 42}
        """
        return self._select("with_columns", columns, name, named, keep=True)

    def _select(
        self,
        method: str,
        columns: tuple[str | Expression, ...],
        name: str | Expression | None,
        named: dict[str, Expression],
        keep: bool,
    ) -> KStream:
        if isinstance(name, Expression):
            named, name = {**named, "name": name}, None
        f, faults = struct(method, columns, named, keep=keep)

        def make(step: str) -> Op:
            for fault in faults:
                self._drawing.fault(step, fault)
            return ops.MapValues(f, keyed=True)

        return self._step("KSTREAM-MAPVALUES-", name, make, key=self._key, value=Json(), changes_value=True)

    def flat_map(self, f: Function, *, name: str | None = None) -> KStream:
        """Emit each pair of `f(key, value)`, in order.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").flat_map(lambda key, value: [(word, 1) for word in value.split()]).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send(None, "to be", at=0)
        ...     [(record.key, record.value) for record in driver.output("out").read_all()]
        [('to', 1), ('be', 1)]
        """
        make = self._checked(f, 2, ops.FlatMap, iterates=True)
        return self._step("KSTREAM-FLATMAP-", name, make, changes_key=True)

    def flat_map_values(self, f: Function | Expression, *, name: str | None = None) -> KStream:
        """Emit the record once per element of `f(value)`, or `f(key, value)`, in order.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").flat_map_values(lambda value: value.split()).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("a", "to be", at=0)
        ...     [(record.key, record.value) for record in driver.output("out").read_all()]
        [('a', 'to'), ('a', 'be')]
        """
        function = as_function(f)
        return self._step(
            "KSTREAM-FLATMAPVALUES-",
            name,
            lambda step: ops.FlatMapValues(function, self._drawing.keyed(step, function, 1, iterates=True)),
            key=self._key,
            changes_value=True,
        )

    def select_key(self, f: Function | Expression, *, name: str | None = None) -> KStream:
        """Emit the record under the key `f(key, value)`, or an expression's; a grouping or join below repartitions.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").select_key(lambda key, value: value[0]).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "ann", at=0)
        ...     driver.output("out").read_all()
        [Record(key='a', value='ann', timestamp=0, headers=())]
        """
        make = self._checked(as_function(f), 2, ops.SelectKey)
        return self._step("KSTREAM-KEY-SELECT-", name, make, value=self._value, changes_key=True)

    def values(self, *, name: str | None = None) -> KStream:
        """Emit the record without its key.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").values().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "ann", at=0)
        ...     driver.output("out").read_all()
        [Record(key=None, value='ann', timestamp=0, headers=())]
        """
        return self.select_key(_no_key, name=name)

    def peek(self, f: Function, *, name: str | None = None) -> KStream:
        """Call `f(key, value)` for its effect, then emit the record unchanged.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").peek(lambda key, value: print("saw", value)).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        saw 1
        """
        return self._step("KSTREAM-PEEK-", name, self._checked(f, 2, ops.Peek), key=self._key, value=self._value)

    def foreach(self, f: Function, *, name: str | None = None) -> None:
        """Call `f(key, value)` for its effect; the stream ends here.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").foreach(lambda key, value: print(key, value))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        k 1
        """
        self._step("KSTREAM-FOREACH-", name, self._checked(f, 2, ops.Foreach))

    def print(self, file: str | None = None, label: str | None = None, *, name: str | None = None) -> None:
        """Write each record as `[label]: key, value` to a file, or to standard output; the stream ends here.

        Lines are appended to the file: a restarted task must not wipe out what it wrote before.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").print(label="orders")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        [orders]: k, 1
        """
        self._drawing.text("print(): file=", file)
        shown = self._drawing.text("print(): label=", label) or self._name
        self._step("KSTREAM-PRINTER-", name, lambda step: ops.Print(shown, file))

    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """Emit the records of both streams; each keeps its own order, between them there is none.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("a").merge(builder.stream("b")).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("b").send("k", 2, at=0)
        ...     driver.input("a").send("k", 1, at=1)
        ...     [record.value for record in driver.output("out").read_all()]
        [2, 1]
        """
        if not isinstance(other, KStream):
            raise TopologyError([f"{self!r}: merge() takes a KStream, not {other!r}"])
        self._drawing.check_own(self._name, other)
        name = self._drawing.named(name, "KSTREAM-MERGE-")
        node = StepNode(name, ops.PassThrough())
        node.is_merge = True
        self._drawing.add((self._node, other._node), node)
        both = self._sources | other._sources
        return KStream(self._drawing, node, name, None, None, both, self._repartition or other._repartition)

    def split(self, *, name: str | None = None) -> Branches:
        """Begin to split the stream: each record goes to the first branch whose predicate holds.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> branches = builder.stream("in").split(name="n-").branch(lambda k, v: v < 0, name="low").default(name="rest")
        >>> branches["n-low"].to("low")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", -1, at=0)
        ...     [record.value for record in driver.output("low").read_all()]
        [-1]
        """
        from headwater.dsl.split import Branches

        return Branches(self, name)

    # ---- topics ------------------------------------------------------------------------------------------------

    def to(
        self,
        topic: str | Callable[..., str],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Callable[..., int | None] | None = None,
        name: str | None = None,
    ) -> None:
        """Write each record to the topic, or to the one that `topic(key, value, context)` names.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to(lambda key, value, context: f"from-{context.topic}")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        ...     len(driver.output("from-in").read_all())
        1
        """
        drawing = self._drawing
        name = drawing.named(name, "KSTREAM-SINK-")
        if callable(topic):
            drawing.check(name, topic, 3)
        else:
            drawing.check_topic(name, topic)
        drawing.check_serde(name, "key=", key)
        drawing.check_serde(name, "value=", value)
        if partitioner is not None:
            drawing.check(name, partitioner, 4)
        key = key or self._key or drawing.default_key
        value = value or self._value or drawing.default_value
        drawing.add(self._node, SinkNode(name, topic, key, value, partitioner))

    def repartition(
        self,
        *,
        name: str | None = None,
        partitions: int | None = None,
        partitioner: Callable[..., int | None] | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> KStream:
        """Send the records through an internal topic, spread by key; those without a key end here, uncounted.

        >>> from headwater import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").select_key(lambda k, v: v).repartition(name="by-value", partitions=3).to("out")
        >>> builder.build().internal_topics
        {'by-value-repartition': 3}
        """
        drawing = self._drawing
        drawing.text("name=", name)
        stem = name if name is not None else drawing.new_name("KSTREAM-REPARTITION-")
        fault = number_fault("partitions=", partitions, 1, optional=True)
        if fault:
            drawing.fault(stem, fault)
        drawing.check_serde(stem, "key=", key)
        drawing.check_serde(stem, "value=", value)
        if partitioner is not None:
            drawing.check(stem, partitioner, 4)
        key, value = key or self._key, value or self._value
        node = drawing.repartition(stem, key, value, name is not None, partitioner, partitions, optimizable=False)
        drawing.add(self._node, node)
        return KStream(drawing, node, node.name, key, value, frozenset({node.name}), False)

    # ---- tables and groups -------------------------------------------------------------------------------------

    def to_table(
        self,
        *,
        store: str | StoreDescription | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """Keep the latest value per key; a null value deletes, a null key is dropped and counted.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> latest = builder.stream("in").to_table(store="latest")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        ...     driver.input("in").send("k", 2, at=1)
        ...     list(driver.store("latest").all())
        [('k', 2)]
        """
        from headwater.dsl.table import KTable

        drawing = self._drawing
        given = name
        name = drawing.named(name, "KSTREAM-TOTABLE-")
        materialized = drawing.materialized(store, "KSTREAM-TOTABLE-", key, value)
        key, value = materialized.key or self._key, materialized.value or self._value
        parent, sources = self._node, self._sources
        if self._repartition:
            parent = drawing.repartition(name, key, value, given is not None)
            drawing.add(self._node, parent)
            sources = frozenset({parent.name})
        spec = materialized.key_value(key or drawing.default_key, value or drawing.default_value)
        table = SourceTable(spec, materialized.queryable)
        node = TableNode(name, table)
        node.output_versioned = materialized.versioned
        drawing.add(parent, node)
        return KTable(drawing, node, name, key, value, sources, table)

    def group_by_key(
        self, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> KGroupedStream:
        """Group the records by their key; goes through a repartition topic only if the key was changed above.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by_key().count().to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "x", at=0)
        ...     driver.output("out").read_all()
        [Record(key='k', value=1, timestamp=0, headers=())]
        """
        from headwater.dsl.grouped import KGroupedStream

        self._check_grouping(name, key, value)
        key, value = key or self._key, value or self._value
        return KGroupedStream(
            self._drawing, self._node, self._name, key, value, self._sources, self._repartition, name
        )

    def group_by(
        self,
        f: Function | Expression,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KGroupedStream:
        """Group the records by `f(key, value)`, through a repartition topic; a null group key ends there, uncounted.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(lambda key, value: value[0]).count(store="initials")
        KTable(KSTREAM-AGGREGATE-0000000002)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "ann", at=0)
        ...     driver.store("initials").get("a")
        1
        """
        from headwater.dsl.grouped import KGroupedStream

        self._check_grouping(name, key, value)
        keyed = self._step(
            "KSTREAM-KEY-SELECT-",
            name,
            self._checked(as_function(f), 2, ops.SelectKey),
            value=self._value,
            changes_key=True,
        )
        value = value or self._value
        return KGroupedStream(self._drawing, keyed._node, keyed._name, key, value, self._sources, True, name)

    def _check_grouping(self, name: str | None, key: Serde | None, value: Serde | None) -> None:
        step = self._drawing.text("name=", name) or self._name
        self._drawing.check_serde(step, "key=", key)
        self._drawing.check_serde(step, "value=", value)

    # ---- joins -------------------------------------------------------------------------------------------------

    @overload
    def join(
        self,
        other: KStream,
        joiner: Function,
        windows: JoinWindows,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: str | None = None,
        store: str | tuple[Window, Window] | None = None,
    ) -> KStream: ...
    @overload
    def join(
        self,
        other: KTable,
        joiner: Function,
        *,
        grace: timedelta | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: str | None = None,
    ) -> KStream: ...
    @overload
    def join(
        self, other: GlobalKTable, joiner: Function, *, select: Function | Expression, name: str | None = None
    ) -> KStream: ...
    def join(self, other: Any, joiner: Function, windows: JoinWindows | None = None, **options: Any) -> KStream:
        """Emit `joiner(left, right)` for each match with a stream inside the window, a table's row or a global row.

        Stream-stream: timestamps may lie `windows` apart; the result carries the later one. Stream-table: the table's
        value at this moment (over a versioned table: at the record's time; `grace=` waits for late table updates).
        Records without a key or value are dropped and counted.

        >>> from datetime import timedelta
        >>> from headwater import JoinWindows, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("views").join(
        ...     builder.stream("clicks"), lambda v, c: f"{v}/{c}", JoinWindows.of(timedelta(seconds=5))).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("views").send("ad", "v", at=0)
        ...     driver.input("clicks").send("ad", "c", at=3000)
        ...     driver.output("out").read_all()
        [Record(key='ad', value='v/c', timestamp=3000, headers=())]
        """
        from headwater.dsl.joins import join_stream

        if "select" in options:
            options["select"] = as_function(options["select"], timestamps=False)
        return join_stream(self, other, joiner, "inner", windows, **options)

    @overload
    def left_join(
        self,
        other: KStream,
        joiner: Function,
        windows: JoinWindows,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: str | None = None,
        store: str | tuple[Window, Window] | None = None,
    ) -> KStream: ...
    @overload
    def left_join(
        self,
        other: KTable,
        joiner: Function,
        *,
        grace: timedelta | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: str | None = None,
    ) -> KStream: ...
    @overload
    def left_join(
        self, other: GlobalKTable, joiner: Function, *, select: Function | Expression, name: str | None = None
    ) -> KStream: ...
    def left_join(self, other: Any, joiner: Function, windows: JoinWindows | None = None, **options: Any) -> KStream:
        """Like `join`, and `joiner(left, None)` for each left record without a match.

        Stream-stream: an unmatched record is emitted once, when its window and grace have passed in stream time.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("orders").left_join(builder.table("users"), lambda o, u: (o, u)).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("orders").send("ann", 1, at=0)
        ...     driver.output("out").read_all()
        [Record(key='ann', value=[1, None], timestamp=0, headers=())]
        """
        from headwater.dsl.joins import join_stream

        if "select" in options:
            options["select"] = as_function(options["select"], timestamps=False)
        return join_stream(self, other, joiner, "left", windows, **options)

    def outer_join(
        self,
        other: KStream,
        joiner: Function,
        windows: JoinWindows,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: str | None = None,
        store: str | tuple[Window, Window] | None = None,
    ) -> KStream:
        """Like `join`, with None for the missing side of each record that found no match before its window closed.

        >>> from datetime import timedelta
        >>> from headwater import JoinWindows, StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("a").outer_join(
        ...     builder.stream("b"), lambda a, b: [a, b], JoinWindows.of(timedelta(seconds=1))).to("out")
        >>> with TopologyTestDriver(builder.build(), now=1) as driver:
        ...     driver.input("a").send("k", 1, at=0)
        ...     driver.input("b").send("k", 2, at=5000)
        ...     [record.value for record in driver.output("out").read_all()]
        [[1, None]]
        """
        from headwater.dsl.joins import join_stream

        return join_stream(
            self, other, joiner, "outer", windows, key=key, value=value, other_value=other_value, name=name, store=store
        )

    # ---- the processor API -------------------------------------------------------------------------------------

    def process(
        self, supplier: Callable[[], Any], stores: Stores = (), *, name: str | None = None
    ) -> KStream:
        """Run a processor over the records; it forwards what it likes and may touch the stores.

        These are named, if they were added by `add_store`, or described, and then added for it.

        >>> from headwater import Processor, StreamsBuilder, TopologyTestDriver
        >>> class Twice(Processor):
        ...     def process(self, record):
        ...         self.context.forward(record)
        ...         self.context.forward(record.replace(timestamp=record.timestamp + 1))
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").process(Twice).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 1, at=0)
        ...     [record.timestamp for record in driver.output("out").read_all()]
        [0, 1]
        """
        return self._process("KSTREAM-PROCESSOR-", supplier, stores, name, fixed_key=False)

    def process_values(
        self, supplier: Callable[[], Any], stores: Stores = (), *, name: str | None = None
    ) -> KStream:
        """Run a processor that keeps each record's key, so that nothing is repartitioned below.

        A record forwarded from `process` must keep the key of the record being processed. A punctuator has no current
        record: it may forward any key, and must itself take care that keys stay on their partition.

        >>> from headwater import Processor, StreamsBuilder, TopologyTestDriver
        >>> class Upper(Processor):
        ...     def process(self, record):
        ...         self.context.forward(record.replace(value=record.value.upper()))
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").process_values(Upper).to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", "a", at=0)
        ...     [record.value for record in driver.output("out").read_all()]
        ['A']
        """
        return self._process("KSTREAM-PROCESSVALUES-", supplier, stores, name, fixed_key=True)

    def _process(
        self, prefix: str, supplier: Callable[[], Any], stores: Stores, name: str | None, fixed_key: bool
    ) -> KStream:
        if not isinstance(stores, str | StoreDescription | Iterable):
            raise TopologyError([f"{name or prefix}: stores= takes stores or their names, not {stores!r:.80}"])
        given = (stores,) if isinstance(stores, str | StoreDescription) else tuple(stores)
        names = tuple(self._drawing.shared_store(store) for store in given)
        # Kafka Streams burns no number for a named process().
        name = self._drawing.new_name(prefix) if self._drawing.text("name=", name) is None else name
        assert name is not None
        self._drawing.check_supplier(name, supplier)
        node = StepNode(name, ops.Process(supplier, fixed_key, names), connect=names)
        self._drawing.add(self._node, node)
        key = self._key if fixed_key else None
        return KStream(self._drawing, node, name, key, None, self._sources, self._repartition or not fixed_key)

    def __repr__(self) -> str:
        return f"KStream({self._name})"


def _no_key(key: Any, value: Any) -> None:
    return None
