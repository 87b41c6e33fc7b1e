"""One shard of a stage in one batch: rows in, rows out, over the cells in which the shard's state lives. It owns the
order of a shard's input, what of it is carried over to the next batch, and where results go; the work is the shared
task's, and nothing here knows Spark.

Records of a source come in offset order. Those of a repartition topic come in the order of (sending stage, shard,
sequence) and get their offsets here. Among several inputs the task takes the lowest timestamp first; what it does
not take, because it waits for another input, is kept in cells of its own until a later batch:

| cell | content |
|---|---|
| `q` | MessagePack: the time of the last tick, and (topic, partition, cell, last offset) of each chunk kept |
| `q` number | a chunk: packed records as they came |
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any

import msgspec

from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers
from headwater.state.backend import Backend
from headwater.streams.changes import TASK, committed_memory, memory_key, pickled
from headwater.streams.context import Output
from headwater.streams.queues import RawRecord
from headwater.streams.set_back import SetBack, ask
from headwater.streams.spark.rows import DRAIN, OUTPUT, REPORT, SOURCE, Row, pack, unpack, unpack_batch
from headwater.streams.spark.state import Cells, PagedBackend
from headwater.streams.task import Task, TaskSpec

__all__ = [
    "Report",
    "Routes",
    "ShardPlan",
    "collecting_seldom",
    "of_globals",
    "open_backend",
    "output_rows",
    "run_shard",
    "specification",
]

log = logging.getLogger("headwater")

# A shard's backend keeps the global tables' own rows under this name, beside the task's.
GLOBAL_TASK = "|global task"
# How many records go into one row, and about how many bytes of them: Spark and Arrow take no more than two gigabytes.
AT_ONCE = 10_000
BYTES_AT_ONCE = 64 << 20

_INDEX = b"q"
# The memory in which a shard notes the start of the query.
_RUN = "run"
LAST = 1 << 62
# How the headers begin that say how far an asker was.
TAG = "headwater-"


@dataclass(frozen=True)
class Routes:
    """Where records for a topic go: to the stages that read it, or else out. Also how many partitions it has."""

    readers: Mapping[str, Sequence[int]]
    partitions: Mapping[str, int]

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; one that a function names and that is not there is made as wide as any."""
        return self.partitions.get(topic) or self._widest

    @cached_property
    def _widest(self) -> int:
        return max(self.partitions.values(), default=1)


@dataclass(frozen=True)
class ShardPlan:
    """What a stage's shards must know, in a form that travels."""

    stage: int
    task: bytes | None
    global_task: bytes | None
    global_topics: frozenset[str]
    inputs: tuple[str, ...]
    # Inputs that only keep copies of tables: answers to what was read come after it.
    copied: frozenset[str]
    # Part of a circle: no input waits for another, so that answers come in the batch of what they answer.
    in_circle: bool
    # The header under which records on their way round say how far who asked was: the last offset of each input.
    tag: str | None
    routes: Routes
    # Topics whose records have no offsets but something to order equal timestamps by.
    unnumbered: frozenset[str] = frozenset()
    # Records between two commits; None: as many as there are.
    at_once: int | None = None
    # Stream time that is to be set back, once.
    set_back: SetBack | None = None
    # The start of the query, where a task must know whether it is a new one.
    run: str | None = None


class Report(msgspec.Struct):
    """What a shard tells the driver about a batch."""

    stage: int
    shard: int
    processed: int = 0
    waiting: int = 0
    dropped: dict[str, int] = {}
    late: dict[str, int] = {}
    printed: str = ""
    warnings: list[str] = []
    rows: int = 0  # in all its stores

    def count(self, metrics: Mapping[str, Mapping[str, int]], muted: frozenset[str]) -> None:
        """Add a task's counts, but for those of its muted steps."""
        for name, counts in metrics.items():
            if name not in muted:
                if dropped := counts["dropped-records-total"]:
                    self.dropped[name] = self.dropped.get(name, 0) + dropped
                if late := counts["late-records-total"]:
                    self.late[name] = self.late.get(name, 0) + late

    def warn(self, warning: str) -> None:
        """Let the driver warn; where it takes no reports, as between DataFrames, Spark's log has it."""
        self.warnings.append(warning)
        log.warning(warning)

    def row(self) -> Row:
        """The report as a row."""
        return REPORT, self.shard, None, self.stage, self.shard, 0, msgspec.msgpack.encode(self)


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """While in it, Python seldom looks for cycles: a batch is many objects, none of them in one."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@lru_cache(maxsize=64)
def specification(data: bytes) -> TaskSpec:
    """A task's description from its bytes, once per process."""
    return TaskSpec.loads(data)


def open_backend(spec: TaskSpec | None, global_spec: TaskSpec | None, cells: Cells) -> PagedBackend:
    """The rows of a shard: its task's, and those of its copy of the global tables."""
    stores = spec.backend_stores() if spec is not None else [TASK]
    if global_spec is not None:
        stores = [*stores, *(GLOBAL_TASK if store == TASK else store for store in global_spec.backend_stores())]
    return PagedBackend(cells, stores)


def of_globals(backend: Backend) -> Backend:
    """A shard's rows as the global task sees them."""
    return _Renamed(backend, TASK, GLOBAL_TASK)


class _Index(msgspec.Struct, array_like=True):
    now: int = 0
    next: int = 0
    chunks: list[tuple[str, int, int, int, int]] = []


@dataclass
class _Chunk:
    """Records of one input that wait to be fed: in a cell already, or new with this batch."""

    last: int
    count: int
    load: Callable[[], list[RawRecord]]
    cell: int | None = None


@dataclass
class _Inputs:
    """The chunks of each input, in order, and those of them that the task has been given."""

    waiting: dict[tuple[str, int], deque[_Chunk]] = field(default_factory=lambda: defaultdict(deque))
    given: dict[tuple[str, int], list[_Chunk]] = field(default_factory=lambda: defaultdict(list))


def run_shard(plan: ShardPlan, shard: int, rows: Sequence[Row], cells: Cells) -> Iterator[Row]:
    """Take a shard's rows of one batch, commit what follows from them to its cells, and yield the rows for others."""
    printed = io.StringIO()
    report = Report(plan.stage, shard)
    with contextlib.redirect_stdout(printed), collecting_seldom():
        results = _Shard(plan, shard, cells, report).run(rows)
    report.printed = printed.getvalue()
    yield from results
    yield report.row()


class _Shard:
    def __init__(self, plan: ShardPlan, shard: int, cells: Cells, report: Report) -> None:
        self._plan = plan
        self._shard = shard
        self._cells = cells
        self._report = report
        self._spec = specification(plan.task) if plan.task is not None else None
        self._global_spec = specification(plan.global_task) if plan.global_task is not None else None
        self._backend = open_backend(self._spec, self._global_spec, cells)
        # Packed at every commit: as objects they take ten times the memory.
        self._results: list[Row] = []
        self._commits = 0
        data = cells.get(_INDEX)
        self._index = _Index() if data is None else msgspec.msgpack.decode(data, type=_Index)
        self._written = data

    def run(self, rows: Sequence[Row]) -> list[Row]:
        ticks = [row for row in rows if row[2] is None]
        now = self._index.now = max([self._index.now, *(row[5] for row in ticks)])
        globals_ = self._update_globals(rows, now)
        if self._spec is not None:
            spec = replace(
                self._spec, partition=self._shard, task_id=f"{self._spec.task_id.rsplit('_', 1)[0]}_{self._shard}"
            )
            partitions_of = self._plan.routes.partitions_of
            if self._plan.set_back is not None:
                ask(self._backend, self._plan.set_back)
            restarted = self._is_restarted()
            task = Task(
                spec, self._backend, partitions_of, globals_, now=now, warn=self._report.warn, restarted=restarted
            )
            inputs = self._inputs(rows, task)
            task.draining = self._plan.in_circle or any(row[6] == DRAIN for row in ticks)
            if self._plan.tag is not None and self._plan.copied:
                self._answer(task, inputs, now, self._plan.tag)
            elif self._plan.in_circle:
                self._ask(task, inputs, now)
            self._process(task, inputs, now)
            if ticks and task.punctuate(now):
                self._commit(task)
                self._process(task, inputs, now)
            self._carry_over(task, inputs)
            self._report.count(task.metrics(), spec.muted)
            task.close()
        self._backend.flush()
        self._report.rows = sum(self._backend.counts().values())
        data = msgspec.msgpack.encode(self._index)
        if data != self._written and self._index != _Index():
            self._cells.put(_INDEX, data)
        return self._results

    def _is_restarted(self) -> bool:
        """Whether the query has been started since the shard's last batch."""
        if self._plan.run is None:
            return False
        known = committed_memory(self._backend, _RUN)
        self._backend.write({TASK: {memory_key(_RUN): pickled({"id": self._plan.run})}})
        return known is not None and known["id"] != self._plan.run

    # ---- global tables -----------------------------------------------------------------------------------------

    def _update_globals(self, rows: Iterable[Row], now: int) -> Mapping[str, Any]:
        if self._global_spec is None:
            return {}
        backend = of_globals(self._backend)
        task = Task(self._global_spec, backend, self._plan.routes.partitions_of, now=now)
        arrived: dict[tuple[str, int], list[RawRecord]] = defaultdict(list)
        for _, _, topic, _, partition, _, data in rows:
            if topic in self._plan.global_topics and topic is not None and data is not None:
                arrived[topic, partition] += unpack(data)
        for place, records in sorted(arrived.items()):
            task.feed(*place, sorted(records, key=lambda record: record[4]))
            while task.process(len(records), now):
                backend.write(task.commit().batch())
        backend.write(task.commit().batch())
        # Every shard has the same copy: one speaks for all.
        if self._shard == 0:
            self._report.count(task.metrics(), frozenset())
        return task.stores

    # ---- input -------------------------------------------------------------------------------------------------

    def _inputs(self, rows: Iterable[Row], task: Task) -> _Inputs:
        inputs = _Inputs()
        for topic, partition, cell, last, count in self._index.chunks:
            done = task.offsets.get((topic, partition), 0)
            inputs.waiting[topic, partition].append(_Chunk(last, count, self._loader(cell, done), cell))
        arrived: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row[2] is not None and row[2] not in self._plan.global_topics:
                arrived[row[2]].append(row)
        # In the order of the topology's own inputs, so that equal heads are taken as elsewhere; topics that a pattern
        # has found since come last.
        for topic in (*self._plan.inputs, *sorted(arrived.keys() - set(self._plan.inputs))):
            if topic in arrived:
                queue = inputs.waiting[topic, self._shard]
                first = max(task.offsets.get((topic, self._shard), 0), queue[-1].last + 1 if queue else 0)
                queue.extend(self._chunks(topic, arrived[topic], first))
        return inputs

    def _loader(self, cell: int, done: int) -> Callable[[], list[RawRecord]]:
        def load() -> list[RawRecord]:
            data = self._cells.get(_cell_key(cell))
            assert data is not None
            return [record for record in unpack(data) if record[4] >= done]

        return load

    def _chunks(self, topic: str, rows: list[Row], first: int) -> Iterator[_Chunk]:
        rows.sort(key=lambda row: row[3:6])
        packed = [(row[6], unpack_batch(row[6]).column("number")) for row in rows if row[6] is not None]
        if topic in self._plan.unnumbered:
            records = [record for data, _ in packed for record in unpack(data)]
            records.sort(key=lambda record: (record[2], record[4]))
            yield _chunk([(*record[:4], first + at) for at, record in enumerate(records)])
        elif rows[0][3] != SOURCE:
            for data, numbers in packed:
                yield _Chunk(first + len(numbers) - 1, len(numbers), partial(_numbered, data, first))
                first += len(numbers)
        elif not _in_order([numbers.to_numpy() for _, numbers in packed]):
            # Parts of one partition that were read side by side, or a DataFrame, which has no order.
            yield _chunk(sorted((r for data, _ in packed for r in unpack(data)), key=lambda record: record[4]))
        else:
            for data, numbers in packed:
                yield _Chunk(numbers[-1].as_py(), len(numbers), partial(unpack, data))

    def _process(self, task: Task, inputs: _Inputs, now: int) -> None:
        """Feed and process all there is."""
        limit = self._plan.at_once or 1 << 62
        while True:
            fed = False
            for place, chunks in inputs.waiting.items():
                while chunks and not task.waiting(*place):
                    chunk = chunks.popleft()
                    inputs.given[place].append(chunk)
                    task.feed(*place, chunk.load())
                    fed = True
                task.caught_up(*place, not chunks)
            done = task.process(limit, now)
            self._report.processed += done
            if done and (self._plan.at_once or task.wants_commit):
                self._commit(task)
            if not done and not fed:
                break
        self._commit(task)

    def _commit(self, task: Task) -> None:
        self._send(self._committed(task))

    def _committed(self, task: Task) -> list[Output]:
        changes = task.commit()
        self._backend.write(changes.batch())
        return changes.outputs

    def _send(self, outputs: Iterable[Output]) -> None:
        plan = self._plan
        self._results += output_rows(plan.routes, plan.stage, self._shard, self._commits, outputs)
        self._commits += 1

    # ---- circles -----------------------------------------------------------------------------------------------

    def _one_by_one(self, task: Task, inputs: _Inputs, now: int) -> Iterator[list[Output]]:
        """Process all there is, and yield after each record what it has sent."""
        fed = True
        while fed:
            fed = False
            for place, chunks in inputs.waiting.items():
                while chunks and not task.waiting(*place):
                    chunk = chunks.popleft()
                    inputs.given[place].append(chunk)
                    task.feed(*place, chunk.load())
                    fed = True
            while task.process(1, now):
                self._report.processed += 1
                yield self._committed(task) if self._plan.at_once else task.take_outputs()
                if task.wants_commit:
                    self._commit(task)
                if any(chunks and not task.waiting(*place) for place, chunks in inputs.waiting.items()):
                    fed = True
                    break

    def _ask(self, task: Task, inputs: _Inputs, now: int) -> None:
        """Process record by record: each question says how far its asker was, each answer repeats what was said."""
        round_ = _Round(self._plan, self._shard)
        for sent in self._one_by_one(task, inputs, now):
            topic, offset, headers = task.record_place
            if topic is not None and offset is not None:
                round_.note(topic, offset, headers)
            round_.add(sent)
        self._send(round_.outputs)

    def _answer(self, task: Task, inputs: _Inputs, now: int, tag: str) -> None:
        """Process answers in the order of their questions, each when the copies are as far as the asker was.

        An answer to a row that has changed since is discarded. Were all rows read before all answers, a deletion could
        get lost: that of a row which the foreign table does not have, if the left row then changes once more.
        """
        plan = self._plan
        read: dict[str, deque[RawRecord]] = {}
        answers: dict[str, deque[tuple[dict[str, int], RawRecord]]] = {}
        for (topic, _), chunks in inputs.waiting.items():
            records = [record for chunk in chunks for record in chunk.load()]
            if topic in plan.routes.readers:
                asked = [(_needs(record, f"{tag}.{self._shard}"), record) for record in records]
                asked.sort(key=lambda one: _order(one[0], plan.copied))
                first = min((record[4] for record in records), default=0)
                answers[topic] = deque((needs, (*r[:4], first + at)) for at, (needs, r) in enumerate(asked))
            elif topic in plan.copied:
                read[topic] = deque(records)
        round_ = _Round(plan, self._shard)

        def take(topic: str, records: list[RawRecord]) -> None:
            task.feed(topic, self._shard, [(*r[:3], _without_tags(r[3]), r[4]) for r in records])
            while task.process(1, now):
                self._report.processed += 1
                at, offset, _ = task.record_place
                if at is not None and offset is not None:
                    round_.note(at, offset, records[0][3])
                round_.add(self._committed(task) if plan.at_once else task.take_outputs())
                if task.wants_commit:
                    self._commit(task)

        def reach(needs: Mapping[str, int]) -> None:
            for topic, offset in needs.items():
                due = []
                while read.get(topic) and read[topic][0][4] <= offset:
                    due.append(read[topic].popleft())
                if due:
                    take(topic, due)
            for topic, offset in needs.items():
                while topic in plan.copied and answers.get(topic) and answers[topic][0][1][4] <= offset:
                    answer(topic)

        def answer(topic: str) -> None:
            needs, record = answers[topic].popleft()
            reach(needs)
            take(topic, [record])

        for topic in sorted(answers, key=plan.copied.__contains__):
            while answers[topic]:
                answer(topic)
        reach(dict.fromkeys(read, LAST))
        self._send(round_.outputs)
        for place, chunks in inputs.waiting.items():
            if place[0] in answers or place[0] in read:
                inputs.given[place].extend(chunks)
                chunks.clear()

    def _carry_over(self, task: Task, inputs: _Inputs) -> None:
        kept: list[tuple[str, int, int, int, int]] = []
        for place in {**inputs.given, **inputs.waiting}:
            done = task.offsets.get(place, 0)
            for chunk in (*inputs.given[place], *inputs.waiting[place]):
                if chunk.last < done:
                    if chunk.cell is not None:
                        self._cells.delete(_cell_key(chunk.cell))
                    continue
                if chunk.cell is None:
                    chunk.cell = self._index.next
                    self._index.next += 1
                    records = chunk.load()
                    self._cells.put(_cell_key(chunk.cell), pack(records))
                kept.append((*place, chunk.cell, chunk.last, chunk.count))
        self._index.chunks = kept
        self._report.waiting = task.queued + sum(c.count for chunks in inputs.waiting.values() for c in chunks)


class _Round:
    """What goes round a circle in one batch: how far this shard is, what it was told by others, what it has sent."""

    def __init__(self, plan: ShardPlan, shard: int) -> None:
        self._own = None if plan.tag is None else f"{plan.tag}.{shard}"
        self._within = plan.routes.readers
        self._reached: dict[str, int] = {}
        # By the group and shard that has asked.
        self._told: dict[str, bytes] = {}
        self.outputs: list[Output] = []

    def note(self, topic: str, offset: int, headers: Headers) -> None:
        """A record has been processed."""
        self._reached[topic] = offset
        self._told |= {name: value for name, value in headers if name.startswith(TAG) and value is not None}

    def add(self, sent: Iterable[Output]) -> None:
        """It has sent these: what stays within the circle is told how far askers were, all else is told nothing."""
        own = {} if self._own is None else {self._own: msgspec.json.encode(self._reached)}
        for output in sent:
            headers = _without_tags(output[5])
            if output[0] in self._within:
                asked = {name: value for name, value in self._told.items() if name.endswith(f".{output[1]}")}
                headers = (*headers, *(asked | own).items())
            self.outputs.append((*output[:5], headers))


def _needs(record: RawRecord, tag: str) -> dict[str, int]:
    """How far the asker was whom a record answers: the last offset of each input."""
    told = [value for name, value in record[3] if name == tag and value is not None]
    return msgspec.json.decode(told[-1], type=dict[str, int]) if told else {}


def _order(needs: Mapping[str, int], copied: frozenset[str]) -> tuple[list[int], list[tuple[str, int]]]:
    """What answers are sorted by: how far the asker was in the tables it has copies of, then in what goes round.

    Both only grow, and one that it had not begun to read in this batch counts as not reached.
    """
    tables = [needs.get(topic, -1) for topic in sorted(copied)]
    return tables, sorted((topic, offset) for topic, offset in needs.items() if topic not in copied)


def _without_tags(headers: Headers) -> Headers:
    return tuple(header for header in headers if not header[0].startswith(TAG))


def _in_order(numbers: list[Any]) -> bool:
    inside = all((part[1:] > part[:-1]).all() for part in numbers)
    return inside and all(before[-1] < after[0] for before, after in pairwise(numbers))


def _chunk(records: list[RawRecord]) -> _Chunk:
    return _Chunk(records[-1][4], len(records), lambda: records)


def _numbered(data: bytes, first: int) -> list[RawRecord]:
    return [(*record[:4], first + at) for at, record in enumerate(unpack(data))]


def _cell_key(number: int) -> bytes:
    return _INDEX + number.to_bytes(8, "big")


def output_rows(routes: Routes, stage: int, shard: int, first: int, outputs: Iterable[Output]) -> Iterator[Row]:
    """The rows that carry a shard's results to the stages that read their topic, or out. `first` orders the calls."""
    sequence = first << 20
    bound: dict[tuple[int, int, str], list[Any]] = {}
    for topic, partition, key, value, timestamp, headers in outputs:
        readers = routes.readers.get(topic)
        if readers is None:
            bound.setdefault((OUTPUT, shard, topic), []).append((key, value, timestamp, headers, partition))
        else:
            if partition is None:
                count = routes.partitions[topic]
                partition = shard % count if key is None else partition_for(key, count)
            for reader in readers:
                bound.setdefault((reader, partition, topic), []).append((key, value, timestamp, headers, 0))
    for (to, to_shard, topic), records in bound.items():
        for portion in _portions(records):
            yield to, to_shard, topic, stage, shard, sequence, pack(portion)
            sequence += 1


def _portions(records: list[Any]) -> Iterator[list[Any]]:
    """The records in order, as many at once as fit into a row."""
    for at in range(0, len(records), AT_ONCE):
        portion = records[at : at + AT_ONCE]
        if sum(map(_weight, portion)) <= BYTES_AT_ONCE:
            yield portion
            continue
        first = weight = 0
        for place, record in enumerate(portion):
            more = _weight(record)
            if weight and weight + more > BYTES_AT_ONCE:
                yield portion[first:place]
                first, weight = place, 0
            weight += more
        yield portion[first:]


def _weight(record: Any) -> int:
    """The bytes of a record, but for its headers."""
    return len(record[0] or b"") + len(record[1] or b"")


class _Renamed:
    """A back end with one of its stores under another name."""

    def __init__(self, backend: Backend, name: str, real: str) -> None:
        self._backend = backend
        self._names = {name: real}

    def _real(self, store: str) -> str:
        return self._names.get(store, store)

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._backend.get_many(self._real(store), keys)

    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return self._backend.scan(self._real(store), lo, hi, reverse)

    def write(self, batch: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        self._backend.write({self._real(store): rows for store, rows in batch.items()})

    def close(self) -> None:
        self._backend.close()
