"""One shard of a stage in one batch: rows in, rows out, over the cells in which the shard's state lives. It owns the
order of a shard's input, what of it is carried over to the next batch, and where results go; the work is the shared
task's, and nothing here knows Spark.

Records of a source come in offset order. Those of a repartition topic get their offsets here: each sender (stage and
shard) has its own order, and of several senders the one whose next record has the lowest timestamp goes first, the one
with the lowest number among equals. So no record comes later, measured in stream time, than its sender sent it. Among
several inputs the task takes the lowest timestamp first; what it does not take, because it waits for another input, is
kept in cells of its own until a later batch:

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
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, groupby, pairwise
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers
from headwater.state.backend import Backend
from headwater.streams.changes import TASK, committed_memory, memory_key, pickled
from headwater.streams.context import Output
from headwater.streams.queues import RawRecord
from headwater.streams.set_back import SetBack, ask
from headwater.streams.spark.rows import DRAIN, OUTPUT, REPORT, SOURCE, Row, pack, unpack, unpack_batch, unpacked
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
# Headers of records that go round a circle: `headwater-<group>.<shard>` says how far that asker was, and the other one
# what time its sender had reached.
TAG = "headwater-"
TIME = "headwater-time"
_TAGS = re.compile(r"headwater-(?:time|\d+\.\d+)")


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
    # The topics of the circle it is part of, if any: no input waits for another then, so that answers come in the batch
    # of what they answer. Only records of these topics carry the headers of `_Round`.
    circle: frozenset[str]
    # Those of them that bring the answers of a foreign-key join.
    answers: frozenset[str]
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

    def counts(self) -> Counter[tuple[str, str]]:
        """What was counted, by kind and step."""
        found = Counter({("processed", ""): self.processed})
        for kind, steps in (("dropped", self.dropped), ("late", self.late)):
            found.update({(kind, step): count for step, count in steps.items()})
        return found

    def warn(self, warning: str) -> None:
        """Let the driver warn, and Spark's log."""
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
            task.draining = bool(self._plan.circle) or any(row[6] == DRAIN for row in ticks)
            if self._plan.tag is not None and self._plan.copied:
                self._answer(task, inputs, now, self._plan.tag)
            elif self._plan.circle:
                self._ask(task, inputs, now)
            self._process(task, inputs, now)
            if ticks and task.punctuate(now):
                self._commit(task)
                self._process(task, inputs, now)
            self._carry_over(task, inputs)
            self._report.processed = task.processed
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
        if rows[0][3] != SOURCE and rows[0][3:5] != rows[-1][3:5]:
            yield from _merged(rows, first)
            return
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

    def _ask(self, task: Task, inputs: _Inputs, now: int) -> None:
        """Process record by record: each question says how far its asker was, each answer repeats what was said."""
        round_ = _Round(self._plan, self._shard)
        tags: dict[tuple[str, int], Tags] = {}
        fed = True
        while fed:
            fed = False
            for place, chunks in inputs.waiting.items():
                while chunks and not task.waiting(*place):
                    chunk = chunks.popleft()
                    inputs.given[place].append(chunk)
                    records = chunk.load()
                    if place[0] in self._plan.circle:
                        tags |= {(place[0], record[4]): _tags(record[3]) for record in records}
                        records = [_untagged(record) for record in records]
                    task.feed(*place, records)
                    fed = True
            while task.process(1, now):
                self._note(task, round_, tags)
                if any(chunks and not task.waiting(*place) for place, chunks in inputs.waiting.items()):
                    fed = True
                    break
        self._send(round_.outputs)

    def _note(self, task: Task, round_: _Round, tags: dict[tuple[str, int], Tags]) -> None:
        """A record has been processed: take what it has sent."""
        topic, offset, _ = task.record_place
        if topic is not None and offset is not None:
            round_.note(topic, offset, task.record_time, tags.pop((topic, offset), {}))
        round_.add(self._committed(task) if self._plan.at_once else task.take_outputs())
        if task.wants_commit:
            self._commit(task)

    def _answer(self, task: Task, inputs: _Inputs, now: int, tag: str) -> None:
        """Process what comes round among the copies, each record when the copies are as far as they were elsewhere.

        An answer to what was asked here comes when the copies are just as far as the asker was. An answer to a row that
        has changed since is discarded; were all rows read before all answers, a deletion could get lost: that of a row
        which the foreign table does not have, if the left row then changes once more. All else that comes round comes
        not before that, and when the copies have reached the time that its sender had reached.
        """
        plan = self._plan
        loaded = {
            topic: [record for chunk in chunks for record in chunk.load()]
            for (topic, _), chunks in inputs.waiting.items()
            if topic in plan.circle or topic in plan.copied
        }
        copies = _Copies({topic: records for topic, records in loaded.items() if topic not in plan.circle})
        come: dict[str, list[tuple[Tags, RawRecord]]] = {
            topic: [(_tags(record[3]), _untagged(record)) for record in records]
            for topic, records in loaded.items()
            if topic in plan.circle
        }
        own = f"{tag}.{self._shard}"
        queues: dict[str, deque[_Coming]] = {}
        for topic, records in come.items():
            # Stages that keep nothing say nothing: they send records with the times they have read.
            reached = accumulate((record[2] for _, record in records), max)
            is_answer = topic in plan.answers
            coming = []
            for (tags_, record), time in zip(records, reached, strict=True):
                told = _told(tags_, own)
                due = copies.due(told, int(tags_.get(TIME, time)), is_answer)
                coming.append((due, copies.beside(told), told, tags_, record))
            coming.sort(key=lambda one: one[:2])
            first = min((record[4] for _, record in records), default=0)
            queues[topic] = deque(
                _Coming(due, told, tags_, (*record[:4], first + at))
                for at, (due, _, told, tags_, record) in enumerate(coming)
            )
        round_ = _Round(plan, self._shard)
        tags: dict[tuple[str, int], Tags] = {}

        def take(topic: str, record: RawRecord) -> None:
            task.feed(topic, self._shard, [record])
            while task.process(1, now):
                self._note(task, round_, tags)

        def take_next(topic: str) -> None:
            one = queues[topic].popleft()
            for copied in copies.take(one.due):
                take(*copied)
            for other, offset in one.told.offsets.items():
                while other in plan.copied and queues.get(other) and queues[other][0].record[4] <= offset:
                    take_next(other)
            tags[topic, one.record[4]] = one.tags
            take(topic, one.record)

        for is_copied in (False, True):
            names = [topic for topic in queues if (topic in plan.copied) is is_copied]
            while left := [topic for topic in names if queues[topic]]:
                take_next(min(left, key=lambda topic: queues[topic][0].due))
        for copied in copies.take(LAST):
            take(*copied)
        self._send(round_.outputs)
        for place, chunks in inputs.waiting.items():
            if place[0] in loaded:
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


class _Told(msgspec.Struct, array_like=True, frozen=True):
    """How far an asker was: the last offset of each of its inputs.

    `exact`: the record answers what was asked then; else it was sent later.
    """

    offsets: dict[str, int]
    exact: bool = False


# What a record that goes round was told, by header: how far askers were (`_Told`), how far in time its sender was.
Tags: TypeAlias = dict[str, bytes]
_decode_told = msgspec.json.Decoder(_Told).decode
NOBODY = _Told({})


def _told(tags: Tags, own: str) -> _Told:
    return _decode_told(tags[own]) if own in tags else NOBODY


def _tags(headers: Headers) -> Tags:
    return {name: value for name, value in headers if _is_tag(name) and value is not None}


def _untagged(record: RawRecord) -> RawRecord:
    return *record[:3], tuple(header for header in record[3] if not _is_tag(header[0])), record[4]


def _is_tag(name: str) -> bool:
    return name.startswith(TAG) and _TAGS.fullmatch(name) is not None


class _Round:
    """What goes round a circle in one batch: how far this shard is, what it was told by others, what it has sent.

    Records that stay within the circle carry headers that say it; whoever takes them in takes the headers off.
    """

    def __init__(self, plan: ShardPlan, shard: int) -> None:
        self._own = None if plan.tag is None else f"{plan.tag}.{shard}"
        self._circle = plan.circle
        self._offsets: dict[str, int] = {}
        self._time = -1
        # By the group and shard that has asked; and the names of those whom the record processed last answers.
        self._told: Tags = {}
        self._asked: frozenset[str] = frozenset()
        self.outputs: list[Output] = []

    def note(self, topic: str, offset: int, time: int, tags: Tags) -> None:
        """A record has been processed."""
        self._offsets[topic] = offset
        self._time = max(self._time, time)
        self._told |= tags
        self._asked = frozenset(tags)

    def add(self, sent: Iterable[Output]) -> None:
        """It has sent these: what stays within the circle is told how far askers were, all else is told nothing."""
        own: Tags = {TIME: b"%d" % self._time}
        if self._own is not None:
            own[self._own] = msgspec.json.encode(_Told(self._offsets))
        for output in sent:
            if output[0] in self._circle:
                told = {name: self._repeated(name) for name in self._told if name.endswith(f".{output[1]}")}
                output = (*output[:5], (*output[5], *(told | own).items()))
            self.outputs.append(output)

    def _repeated(self, name: str) -> bytes:
        told = _told(self._told, name)
        return msgspec.json.encode(msgspec.structs.replace(told, exact=name in self._asked))


class _Coming(NamedTuple):
    """A record that comes round: how many copied records are taken before it, and what it was told."""

    due: int
    told: _Told
    tags: Tags
    record: RawRecord


class _Copies:
    """The records that a stage of a circle reads to keep copies of tables, in the order they were read before: of
    several topics the one whose next record has the lowest timestamp goes first."""

    def __init__(self, topics: Mapping[str, list[RawRecord]]) -> None:
        merged = sorted(
            (
                (time, at, topic, record)
                for at, (topic, records) in enumerate(topics.items())
                for time, record in zip(accumulate((r[2] for r in records), max), records, strict=True)
            ),
            key=lambda one: one[:2],
        )
        self._records = [(topic, record) for _, _, topic, record in merged]
        # The time that had been reached after each of them.
        self._times = [one[0] for one in merged]
        self._places: dict[str, tuple[list[int], list[int]]] = {topic: ([], []) for topic in topics}
        for place, (topic, record) in enumerate(self._records):
            offsets, places = self._places[topic]
            offsets.append(record[4])
            places.append(place + 1)
        self._taken = 0

    def due(self, told: _Told, time: int, is_answer: bool) -> int:
        """How many copied records are taken before a record that was told this, and was sent at this time.

        At equal times what was read comes before what was repartitioned. Only the answers of a foreign-key join come
        before: a row that was read at that time has asked after they were sent.
        """
        place = self._place(told)
        if told.exact:
            return place
        return max(place, (bisect_left if is_answer else bisect_right)(self._times, time))

    def beside(self, told: _Told) -> list[tuple[str, int]]:
        """How far this shard was in what goes round itself; it orders records that come at the same time."""
        return sorted((topic, offset) for topic, offset in told.offsets.items() if topic not in self._places)

    def _place(self, told: _Told) -> int:
        """How many records had been taken when this shard was so far."""
        found = 0
        for topic, offset in told.offsets.items():
            if topic in self._places:
                offsets, places = self._places[topic]
                before = bisect_right(offsets, offset)
                if before:
                    found = max(found, places[before - 1])
        return found

    def take(self, due: int) -> Iterator[tuple[str, RawRecord]]:
        """The records up to a place that have not been taken yet."""
        while self._taken < min(due, len(self._records)):
            self._taken += 1
            yield self._records[self._taken - 1]


def _in_order(numbers: list[Any]) -> bool:
    inside = all((part[1:] > part[:-1]).all() for part in numbers)
    return inside and all(before[-1] < after[0] for before, after in pairwise(numbers))


def _chunk(records: list[RawRecord]) -> _Chunk:
    return _Chunk(records[-1][4], len(records), lambda: records)


def _numbered(data: bytes, first: int) -> list[RawRecord]:
    return [(*record[:4], first + at) for at, record in enumerate(unpack(data))]


def _merged(rows: list[Row], first: int) -> Iterator[_Chunk]:
    """The records of several senders (rows in the order of sender and sequence), numbered from `first` on.

    The lowest timestamp among the senders' next records goes first. That is the order of the highest timestamp that
    each sender has reached: once it is a sender's turn, what it sent later with a lower timestamp follows at once.
    """
    senders = [
        [unpack_batch(row[6]) for row in sent if row[6] is not None]
        for _, sent in groupby(rows, key=lambda row: row[3:5])
    ]
    reached = [
        np.maximum.accumulate(np.concatenate([batch.column("timestamp").to_numpy() for batch in batches]))
        for batches in senders
    ]
    owners = np.repeat(np.arange(len(senders), dtype=np.int32), [len(times) for times in reached])
    turns = owners[np.argsort(np.concatenate(reached), kind="stable")]
    size = sum(batch.nbytes for batches in senders for batch in batches)
    at_once = max(1, min(AT_ONCE, BYTES_AT_ONCE * len(turns) // max(1, size)))
    queues = [_Sent(batches) for batches in senders]
    for at in range(0, len(turns), at_once):
        part = turns[at : at + at_once]
        counts = np.bincount(part, minlength=len(queues)).tolist()
        taken = [queue.take(count) for queue, count in zip(queues, counts, strict=True)]
        yield _Chunk(first + at + len(part) - 1, len(part), partial(_interleaved, taken, part, first + at))


class _Sent:
    """What one sender has sent, to be taken from the front; nothing is unpacked."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = deque(batches)

    def take(self, count: int) -> list[Any]:
        """Arrow batches of the next so many records."""
        taken = []
        while count:
            batch = self._batches.popleft()
            if len(batch) > count:
                self._batches.appendleft(batch.slice(count))
                batch = batch.slice(0, count)
            taken.append(batch)
            count -= len(batch)
        return taken


def _interleaved(taken: list[list[Any]], turns: Any, first: int) -> list[RawRecord]:
    """The records of several senders, each when it is its sender's turn."""
    queues = [chain.from_iterable(map(unpacked, batches)) for batches in taken]
    return [(*next(queues[sender])[:4], first + at) for at, sender in enumerate(turns.tolist())]


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
