"""From operators to running code: each operator has a rule, a function that makes a closure of it for one node of one
task. It owns the registry of rules, what a rule may touch (Site) and how a node's results reach its children; the rules
themselves are in operators/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from headwater.dsl import ops
from headwater.dsl.callables import check_ran
from headwater.dsl.config import Config
from headwater.dsl.records import Headers
from headwater.dsl.topology import Node, ProcessorNode, Sink, Source, StoreSpec, Topology
from headwater.errors import SerdeError, StreamsError
from headwater.streams.cache import RecordCache
from headwater.streams.changes import step_memory, step_number
from headwater.streams.context import Clock, Punctuations, Schedule, TaskContext
from headwater.streams.faults import Faults, RecordFailed, function_of
from headwater.streams.stores import Store, TableStore, public

if TYPE_CHECKING:
    from headwater.streams.operators.views import Reader

__all__ = ["Memory", "Shared", "Site", "Step", "TaskContext", "compile_nodes", "compile_op", "fan_out", "rule"]

# Takes a stream record (key, value, timestamp, headers) or a table update (key, new, old, latest, timestamp, headers).
Step: TypeAlias = Callable[..., None]
T = TypeVar("T")
Rule: TypeAlias = Callable[[T, "Site"], Step]

_RULES: dict[type[Any], Rule[Any]] = {}


def rule(kind: type[T]) -> Callable[[Rule[T]], Rule[T]]:
    """Register the decorated function as the way to compile one kind of operator (or a sink)."""

    def register(compile_: Rule[T]) -> Rule[T]:
        if kind in _RULES:
            raise StreamsError(f"{kind.__name__} has two rules")
        _RULES[kind] = compile_
        return compile_

    return register


def compile_op(op: ops.Op | Sink, site: Site) -> Step:
    """The running form of an operator or sink, for one node of one task."""
    found = _RULES.get(type(op))
    if found is None:
        raise StreamsError(f"step {site.node!r} is a {type(op).__name__}, which cannot be run here")
    return found(op, site)


class Memory:
    """What an operator must know besides its stores: plain data as attributes, kept with each commit."""

    def __init__(self, **initial: Any) -> None:
        self.__dict__.update(initial)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


class Shared:
    """What all nodes of one task have in common while they are compiled and while they run."""

    def __init__(
        self,
        topology: Topology,
        config: Config,
        context: TaskContext,
        stores: Mapping[str, Store],
        specs: Mapping[str, StoreSpec],
        remembered: Mapping[str, Mapping[str, Any]],
        partitions_of: Callable[[str], int],
        largest: Callable[[str], int | None],
        muted: frozenset[str] = frozenset(),
    ) -> None:
        self.topology = topology
        self.config = config
        self.context = context
        self.stores = stores
        self.specs = specs
        self.remembered = remembered
        self.partitions_of = partitions_of
        self.largest = largest
        self.muted = muted
        self.faults = Faults(config, context)
        self.quiet_faults = Faults(config, context, quiet=True) if muted else self.faults
        self.cache = RecordCache(config.cache_bytes, context)
        self.memories: dict[str, Memory] = {}
        self.sites: dict[str, Site] = {}
        # Processors in the order of their nodes: what to do before the first record, and after the last.
        self.starts: list[tuple[str, Callable[[], None]]] = []
        self.closes: list[tuple[str, Callable[[], object]]] = []
        self.processors: dict[str, Any] = {}
        self.punctuations = Punctuations(context, self.processors, self.sites)

    def memory(self, name: str, initial: Mapping[str, Any], formerly: str = "") -> Memory:
        """The memory of this name (or of the one it had formerly), as it was committed last or as it is at first."""
        memory = self.memories.get(name)
        if memory is None:
            committed = self.remembered.get(name) or self.remembered.get(formerly, {})
            memory = self.memories[name] = Memory(**{**initial, **committed})
        return memory

    def real_topic(self, topic: str) -> str:
        """The topic's name outside: internal topics have the application's id in front."""
        return f"{self.config.app_id}-{topic}" if topic in self.topology.internal_topics else topic


class Site:
    """Everything an operator may touch, for one node of one task.

    `forward` reaches all children in order, `children` each by its name.
    """

    def __init__(self, node: Node, children: list[tuple[str, Step]], shared: Shared) -> None:
        self.node = node.name
        self.children: Mapping[str, Step] = dict(children)
        self.config = shared.config
        self.context = shared.context
        self.partitions_of = shared.partitions_of
        self.largest = shared.largest
        self.real_topic = shared.real_topic
        self.taken = 0
        self.dropped = 0
        self.came_late = 0
        self._op = node.op if isinstance(node, ProcessorNode) else node
        self._own_stores = frozenset(node.stores) if isinstance(node, ProcessorNode) else frozenset()
        self._shared = shared
        self._faults = shared.quiet_faults if node.name in shared.muted else shared.faults
        self._late_record: object = None
        self.forward = fan_out([step for _, step in children], isinstance(self._op, _TABLES))

    # ---- stores and memory -------------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """The typed store of this name, the task's or a global one."""
        return self._shared.stores[name]

    def spec(self, name: str) -> StoreSpec:
        """The description of a store."""
        return self._shared.specs[name]

    def table_store(self, name: str) -> TableStore:
        """A table's store, timestamped or versioned, behind one interface."""
        return TableStore(self._shared.stores[name])

    def user_store(self, name: str, now: Callable[[], int]) -> Any:
        """The store as the user's own code sees it; a StreamsError if this node was not given it.

        `now` gives the timestamp of what is put without one.
        """
        shared = self._shared
        if name not in self._own_stores and name not in shared.topology.global_stores:
            known = ", ".join(sorted({*self._own_stores, *shared.topology.global_stores}))
            # Never a record's fault, so that no handler may pass over it.
            raise RecordFailed(
                f"step {self.node!r} was not given the store {name!r}{f', only {known}' if known else ''}: name it in "
                f"process(…, stores=…) or in add_store(…, {self.node!r})"
            )
        writable = name in self._own_stores
        return public(shared.specs[name], [shared.stores[name]], now, writable, drop=self.drop)

    def view(self, view: ops.View) -> Reader:
        """How to look up another table's rows by key."""
        from headwater.streams.operators.views import compile_view

        return compile_view(view, self)

    def copy(self, store: str, value: Any) -> Any:
        """The value as the store would give it back: itself if it cannot change, a new object otherwise.

        Under compat="kafka-streams" itself, unless the record cache would read it again.
        """
        if self.config.compat is not None and not self._is_cached(store):
            return value
        serde = self._shared.specs[store].value
        return value if value is None or serde.stable(value) else serde.decode(serde.encode(value))

    def _is_cached(self, store: str) -> bool:
        """Whether updates of a store fold in the record cache."""
        spec = self._shared.specs[store]
        return bool(spec.cached and not spec.on_close and self.config.cache_bytes and spec.kind in _CACHEABLE)

    def memory(self, store: str, **initial: Any) -> Memory:
        """The memory of the step that keeps a store, committed with the task; `initial` is what it holds at first."""
        topology = self._shared.topology
        former = self._former_memory("node", self.node, store, step_number(topology, self.node, store))
        return self._shared.memory(step_memory(topology, self.node, store), initial, former)

    def shared_memory(self, name: str, store: str | None, **initial: Any) -> Memory:
        """One memory for all nodes that ask for this name; kept by the name of a store they share, if they do."""
        if store is None:
            return self._shared.memory(f"shared {name}", initial)
        former = self._former_memory("shared", name, store, 0)
        return self._shared.memory(f"steps of {self.spec(store).rows}", initial, former)

    def _former_memory(self, kind: str, node: str, store: str, number: int) -> str:
        """The name that an earlier version, which went by the names of steps, kept a memory under."""
        known = [former for former in self.spec(store).formerly if former.startswith(f"{kind} ")]
        there = [former for former in known if former in self._shared.remembered]
        # Of several steps of one store, each has its own, in their order.
        return there[number] if number < len(there) else f"{kind} {node}"

    # ---- results -----------------------------------------------------------------------------------------------

    def emitter(self, store: str, send_old: bool) -> tuple[Step, bool]:
        """How to forward an update of a row just put into `store`, and whether that needs the old value.

        With the record cache on, updates fold until the commit, and the first one's old value is the one that counts.
        """
        if not self._is_cached(store):
            return self.forward, send_old
        cached = self._shared.cache.store(self._shared.specs[store], self._shared.stores[store])
        return cached.emitter(self.forward, send_old), True

    def keeper(self, store: str) -> Step | None:
        """How to tell the record cache of a row just put into `store` of which nothing is forwarded; None without one.

        So windows emitted on close can be read past their retention while the cache holds them. Kafka Streams caches
        no sessions that are emitted on close.
        """
        spec = self._shared.specs[store]
        if not spec.cached or not self.config.cache_bytes or spec.kind != "window":
            return None
        return self._shared.cache.store(spec, self._shared.stores[store]).emitter(_end, False)

    def output(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Write a record to a topic with the next commit; without a partition the key decides."""
        self.context.outputs.append((topic, partition, key, value, timestamp, headers))

    # ---- what goes wrong ---------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Count a dropped record."""
        self.dropped += 1

    def late(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Count a late record as late and as dropped, and send its source record to the topic for late ones, once."""
        self.dropped += 1
        self.came_late += 1
        record = self.context.record
        if self.config.late is not None and record is not None and record is not self._late_record:
            self._late_record = record
            self._faults.send(self.config.late, ())

    def fault(self, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Ask the handler about a record this node failed on: raise, or count it as dropped and return."""
        if isinstance(error, RecordFailed):
            raise error
        function = function_of(self._op, error)
        if isinstance(error, SerdeError) and self._own_stores and not isinstance(self._op, ops.Process):
            error = self._about_stores(error, key)
        self._faults.handle("processing", self.node, error, key, value, timestamp, headers, function)
        self.dropped += 1

    def _about_stores(self, error: SerdeError, key: Any) -> SerdeError:
        """The error of a serde that only this step's stores can have asked."""
        names = " or ".join(map(repr, sorted(self._own_stores)))
        remedy = "this step's key= or value=, or that of its store="
        told = SerdeError(f"store {names}: {error} (key {key!r:.80}; {remedy})")
        told.__cause__ = error
        return told

    def unwritten(self, error: Exception, topic: str, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Ask the handler about a record that cannot be written: raise, or count it as dropped and return."""
        if isinstance(error, SerdeError):
            named = SerdeError(f"topic {topic!r}: {error} (key {key!r:.80})")
            named.__cause__, error = error, named
        self._faults.handle("production", self.node, error, key, value, timestamp, headers)
        self.dropped += 1

    def unread(
        self, error: Exception, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Ask the handler about a record that cannot be read: raise, or count it as dropped and return."""
        self._faults.handle("deserialization", self.node, error, key, value, timestamp, headers)
        self.dropped += 1

    def ahead(self, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Ask the handler about a record from too far in the future: raise, or count it as dropped and return."""
        self._faults.handle("future", self.node, error, key, value, timestamp, headers)
        self.dropped += 1

    # ---- processors --------------------------------------------------------------------------------------------

    def schedule(self, interval: timedelta, clock: Clock, f: Callable[[int], object]) -> Schedule:
        """Call a function regularly, by stream time or wall clock."""
        return self._shared.punctuations.schedule(self, interval, clock, f)

    def runs(self, processor: Any, start: Callable[[], None]) -> None:
        """This node runs a user's processor: start it when all nodes are compiled, close it at the end."""
        self._shared.processors[self.node] = processor
        self._shared.starts.append((self.node, start))
        self.closes(lambda: check_ran(processor.close, processor.close()))

    def closes(self, close: Callable[[], object]) -> None:
        """Call a function when the task is closed."""
        self._shared.closes.append((self.node, close))


_CACHEABLE = ("key-value", "timestamped", "window", "session")
_AGGREGATES = (ops.Aggregate, ops.TableAggregate, ops.TimeWindowAggregate, ops.SlidingWindowAggregate)
# What gives table updates; everything else gives stream records.
_TABLES = (
    *_AGGREGATES,
    ops.SessionAggregate,
    ops.TableSource,
    ops.TableFilter,
    ops.TableMapValues,
    ops.TableSuppress,
    ops.TableJoinSide,
    ops.TableJoinMerge,
    ops.TablePassThrough,
)


def fan_out(children: list[Step], table: bool) -> Step:
    """One step for all children, in order; a single child is that step itself."""
    if not children:
        return _end
    if len(children) == 1:
        return children[0]
    if len(children) == 2:
        first, second = children
        if table:

            def both_tables(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
                first(key, new, old, latest, timestamp, headers)
                second(key, new, old, latest, timestamp, headers)

            return both_tables

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both

    def all_of_them(*record: Any) -> None:
        for child in children:
            child(*record)

    return all_of_them


def _end(*record: Any) -> None:
    """Nobody wants the record."""


def _counted(step: Step, site: Site) -> Step:
    """A step that counts what it takes."""

    def counted(*record: Any) -> None:
        site.taken += 1
        step(*record)

    return counted


def _failing_like_kafka_streams(step: Step, site: Site) -> Step:
    """A step that is blamed for what escapes from the sinks behind it."""

    def guarded(key: Any, value: Any, *rest: Any) -> None:
        try:
            step(key, value, *rest)
        except RecordFailed:
            raise
        except Exception as error:
            site.fault(error, key, value, *rest[-2:])

    return guarded


def _fatal_behind_a_source(step: Step, site: Site) -> Step:
    """A source's step, behind which a sink's failure is nobody's to handle."""

    def guarded(*record: Any) -> None:
        try:
            step(*record)
        except RecordFailed:
            raise
        except Exception as error:
            context = site.context
            raise RecordFailed(
                f"a sink behind {site.node!r} failed on {context.topic}-{context.partition}@{context.offset} "
                f'with {type(error).__name__}: {error}; under compat="kafka-streams" no handler is asked about that'
            ) from error

    return guarded


def compile_nodes(names: Iterable[str], shared: Shared) -> dict[str, Step]:
    """The running form of some nodes with all their descendants: what to call with a source's records, by its name."""
    topology, compat = shared.topology, shared.config.compat
    steps: dict[str, Step] = {}
    sources: dict[str, Step] = {}
    children: dict[str, list[str]] = {name: topology.children(name) for name in names}
    # Nodes are in topological order, so that backwards every child comes before its parents.
    for name in reversed(list(children)):
        node = topology.nodes[name]
        site = shared.sites[name] = Site(node, [(child, steps[child]) for child in children[name]], shared)
        if isinstance(node, Source):
            sources[name] = site.forward if compat is None else _fatal_behind_a_source(site.forward, site)
        else:
            steps[name] = compile_op(node.op if isinstance(node, ProcessorNode) else node, site)
            if compat is not None and isinstance(node, ProcessorNode):
                steps[name] = _failing_like_kafka_streams(steps[name], site)
            if shared.config.metrics == "debug":
                steps[name] = _counted(steps[name], site)
    shared.starts.reverse()
    shared.closes.reverse()
    return sources
