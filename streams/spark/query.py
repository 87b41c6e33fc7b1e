"""A topology as a Structured Streaming query, from a broker's topics to a broker's topics. It owns starting and
restarting one, the batch that writes its results, and the handle a user holds; how the plan is put together is
chain.py's, and what is recorded beside the checkpoint record.py's.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.dsl.config import Config
from headwater.dsl.topology import Source, Topology
from headwater.errors import StreamsError, TopologyError
from headwater.streams.clocks import HOUR_MS, date_of, system_clock
from headwater.streams.identity import with_kept_stores
from headwater.streams.set_back import SetBack
from headwater.streams.spark.brokers import Broker, open_broker
from headwater.streams.spark.chain import build_chain
from headwater.streams.spark.clock import Ticks, tick_options
from headwater.streams.spark.counts import LateWarnings, steps_of
from headwater.streams.spark.native import Native, nativize, packed_rows
from headwater.streams.spark.record import Recorded, take_up
from headwater.streams.spark.rows import COLUMNS, OUTPUT, REPORT, SOURCE_SCHEMA, unpack
from headwater.streams.spark.session import configure
from headwater.streams.spark.set_back import read_request
from headwater.streams.spark.shard import Report
from headwater.streams.spark.shipping import check_executors, ship
from headwater.streams.spark.stages import Stages, needs_clock, stages
from headwater.streams.spark.views import CommittedStores

__all__ = ["SparkBackend", "SparkQuery", "Writer", "plan_natively", "plan_stages"]

log = logging.getLogger("headwater")


class Writer(Protocol):
    """Writes a shard's results of a batch, once however often it is asked to; it travels to the executors."""

    def write(self, stage: int, shard: int, batch_id: int, outputs: Iterable[tuple[str, list[Any]]]) -> None:
        """Write records (key, value, timestamp, headers, partition or None) to their topics, in order."""
        ...


def plan_stages(topology: Topology, config: Config, topics: dict[str, int]) -> Stages:
    """The stages of a topology over topics with these partitions; what is missing or cannot be is raised together."""
    faults: list[str] = []
    internal = topology.internal_topics

    def topics_of(source: Source) -> list[str]:
        if source.pattern is not None:
            return sorted(topic for topic in topics if source.pattern.fullmatch(topic))
        return [f"{config.app_id}-{topic}" if topic in internal else topic for topic in source.topics]

    def partitions_of(topic: str) -> int:
        for source in topology.sources():
            if source.pattern is not None and source.pattern.pattern == topic:
                return max((topics[t] for t in topics_of(source)), default=1)
        return topics[topic]

    for source in topology.sources():
        for topic in source.topics:
            if topic not in internal and topic not in topics:
                faults.append(
                    f"source {source.name!r} reads the topic {topic!r}, which is not there: create it "
                    f"(headwater topics create {topic})"
                )
    if faults:
        raise TopologyError(faults)
    return stages(topology, config, partitions_of, topics_of)


def plan_natively(
    spark: SparkSession, topology: Topology, config: Config, topics: dict[str, int]
) -> tuple[Stages, list[Native], dict[str, str]]:
    """The stages of a topology, those of them that run in Catalyst, and by their names why others do not."""
    probe = spark.createDataFrame([], SOURCE_SCHEMA)
    return nativize(plan_stages(topology, config, topics), topology, config, probe)


class SparkBackend:
    """Runs topologies in a Spark session.

    `SparkBackend(spark).start(topology, config, broker=…, checkpoint=…)` gives a handle like Spark's own
    StreamingQuery.
    """

    def __init__(self, spark: SparkSession) -> None:
        configure(spark)
        self._spark = spark

    def start(
        self,
        topology: Topology,
        config: Config | None = None,
        *,
        broker: str = "log://./.headwater",
        checkpoint: str | Path,
        trigger: timedelta | str | None = None,
        clock: Callable[[], int] | None = None,
        tick: timedelta = timedelta(seconds=1),
        partitions: int | None = None,
        max_records: int | None = None,
        at_once: int | None = None,
    ) -> SparkQuery:
        """Start a topology as a query, or go on with the one whose checkpoint it is.

        - `broker`: where its topics are, `log://<directory>` or `kafka://<host:port>`.
        - `trigger`: how often a batch starts; None: as soon as there is something to do; `"available-now"`: process
          what is there and end.
        - `clock`: a function that gives the wall clock in epoch milliseconds; it is looked at every `tick`.
        - `partitions`: over how many Spark partitions the shards are spread; as many as there are shards unless given,
          and fixed with the first start.
        - `max_records`: the most records a batch reads.
        - `at_once`: commit after so many records within a batch; the record cache is flushed then.
        """
        config = config or Config()
        self._check(topology, config, trigger, partitions=partitions, max_records=max_records, at_once=at_once)
        there = open_broker(broker, config)
        planned, natives, _ = plan_natively(self._spark, topology, config, there.topics())
        widest = max((stage.shards for stage in planned.chained), default=1)
        now = Recorded.of(topology, config, planned, there.identities, partitions or widest)
        recorded = take_up(self._spark, str(checkpoint), now, config.renamed)
        if any(store.kept for store in recorded.known().stores.values()):
            # Planned again, with stores whose rows are kept under earlier names.
            topology = with_kept_stores(topology, recorded.known())
            planned, natives, _ = plan_natively(self._spark, topology, config, there.topics())
        there.prepare(topology, config, planned)
        planned = dataclasses.replace(planned, partitions={**there.topics(), **planned.partitions})
        check_executors(self._spark, ship(self._spark, topology, config, clock), kafka=there.is_kafka)
        run = None if config.compat is None else uuid4().hex
        query = SparkQuery(
            self._spark,
            topology,
            config,
            planned,
            natives,
            recorded,
            there,
            str(checkpoint),
            trigger,
            Options(clock, tick, max_records, at_once, read_request(self._spark, str(checkpoint)), run),
        )
        query._begin()
        return query

    def _check(
        self, topology: Topology, config: Config, trigger: timedelta | str | None, **counts: int | None
    ) -> None:
        """Refuse what cannot be, before anything is noted."""
        if not topology.sources():
            raise TopologyError(["it reads no topic: there is nothing to do"])
        if trigger not in (None, "available-now") and not isinstance(trigger, timedelta):
            raise StreamsError(f'trigger= is a timedelta, "available-now" or None, not {trigger!r}')
        for name, count in counts.items():
            if count is not None and count < 1:
                raise StreamsError(f"{name}= is {count}: give 1 or more, or leave it out")
        if any(query.name == config.app_id for query in self._spark.streams.active):
            raise StreamsError(
                f"{config.app_id!r} runs in this session already: stop it first, or give this one another id (app_id)"
            )


@dataclasses.dataclass(frozen=True)
class Options:
    """How a query is run, which its results do not hang on."""

    clock: Callable[[], int] | None = None
    tick: timedelta = timedelta(seconds=1)
    max_records: int | None = None
    at_once: int | None = None
    set_back: SetBack | None = None
    run: str | None = None


DEFAULTS = Options()


def query_rows(
    spark: SparkSession,
    topology: Topology,
    config: Config,
    stages: Stages,
    natives: list[Native],
    broker: Broker,
    partitions: int = 1,
    options: Options = DEFAULTS,
    *,
    drain: bool = False,
) -> DataFrame:
    """The rows of a query, before they are written."""
    sources = broker.frame(spark, topology, stages, options.max_records)
    rows = [packed_rows(native, sources) for native in natives]
    if any(stage.kind != "native" for stage in stages.stages):
        ticks = None
        if needs_clock(stages, config):
            spark.dataSource.register(Ticks)
            shards = {stage.number: stage.shards for stage in stages.chained}
            every_ms = max(1, options.tick // timedelta(milliseconds=1))
            settings = tick_options(shards, every_ms, options.clock, drain=drain)
            ticks = spark.readStream.format(Ticks.name()).options(**settings).load().select(*COLUMNS)
        chain = build_chain(
            stages,
            sources,
            ticks,
            partitions,
            at_once=options.at_once,
            set_back=options.set_back,
            run=options.run,
        )
        rows.insert(0, chain)
    return reduce(DataFrame.unionByName, rows)


class SparkQuery:
    """A running topology on Spark: a StreamingQuery, and besides its stores, its counts and the end of its input."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        config: Config,
        planned: Stages,
        natives: list[Native],
        recorded: Recorded,
        broker: Broker,
        checkpoint: str,
        trigger: timedelta | str | None,
        options: Options,
    ) -> None:
        self._spark = spark
        self._topology = topology
        self._config = config
        self._stages = planned
        self._natives = natives
        self._recorded = recorded
        self._broker = broker
        self._checkpoint = checkpoint
        self._trigger = trigger
        self._options = options
        self._counts: Counter[tuple[str, str]] = Counter()
        self._late = LateWarnings()
        self._totals: Counter[str] = Counter()
        self._waiting: dict[tuple[int, int], int] = {}
        self._rows: dict[tuple[int, int], int] = {}
        self._observed = -1
        self._far = -1  # event time of stages in Catalyst that has been warned about
        self._lock = threading.Lock()
        self._query: StreamingQuery | None = None

    # ---- the query ---------------------------------------------------------------------------------------------

    def _begin(self, *, drain: bool = False) -> None:
        with _shuffle_partitions(self._spark, self._recorded.partitions):
            rows = query_rows(
                self._spark,
                self._topology,
                self._config,
                self._stages,
                self._natives,
                self._broker,
                self._recorded.partitions,
                self._options,
                drain=drain,
            )
            writer = (
                rows.writeStream.outputMode("update")
                .queryName(self._config.app_id)
                .option("checkpointLocation", self._checkpoint)
                .foreachBatch(self._deliver)
            )
            trigger = "available-now" if drain else self._trigger
            if trigger == "available-now":
                writer = writer.trigger(availableNow=True)
            elif isinstance(trigger, timedelta):
                writer = writer.trigger(processingTime=f"{trigger // timedelta(milliseconds=1)} milliseconds")
            self._query = writer.start()

    def _deliver(self, rows: DataFrame, batch_id: int) -> None:
        write = _delivery(self._broker.writer(self._recorded.query, self._config), batch_id)
        reports = [
            msgspec.msgpack.decode(row.data, type=Report) for row in rows.mapInArrow(write, "data binary").collect()
        ]
        self._note_natives()
        with self._lock:
            self._totals["batches"] += 1
            for report in reports:
                self._totals["records"] += report.processed
                self._waiting[report.stage, report.shard] = report.waiting
                self._rows[report.stage, report.shard] = report.rows
                for kind, counts in (("dropped", report.dropped), ("late", report.late)):
                    for step, count in counts.items():
                        self._counts[kind, step] += count
            self._warn_of_late()
        for report in sorted(reports, key=lambda report: (report.stage, report.shard)):
            sys.stdout.write(report.printed)
            for warning in report.warnings:
                log.warning(warning)
        sys.stdout.flush()
        self._broker.maintain()

    # ---- as a StreamingQuery -----------------------------------------------------------------------------------

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle."""
        assert self._query is not None
        return self._query

    @property
    def id(self) -> str:
        """The query's id, the same after a restart."""
        return self.query.id

    @property
    def name(self) -> str:
        """The application's id."""
        return self.query.name

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return self.query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing now."""
        return self.query.status

    @property
    def lastProgress(self) -> Any:
        """Spark's own account of the last batch."""
        return self.query.lastProgress

    @property
    def recentProgress(self) -> list[Any]:
        """Spark's own account of the last batches."""
        return list(self.query.recentProgress)

    def exception(self) -> StreamsError | None:
        """Why it has ended, None if nothing went wrong."""
        error = self.query.exception()
        return None if error is None else self._explained(error)

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until it has ended (or, with a timeout in seconds, so long); whether it has. Raise what ended it.

        With the trigger `available-now` and inputs that wait for each other, a last batch then processes what waits.
        """
        ended = self._asked(lambda: self.query.awaitTermination(None if timeout is None else timeout))  # type: ignore[arg-type]
        if timeout is not None and not ended:
            return False
        if self._trigger == "available-now" and self._config.max_task_idle_ms and any(self._waiting.values()):
            self.drain()
        return True

    def processAllAvailable(self) -> None:
        """Wait until all that is there now has been processed and written; for tests."""
        self._asked(self.query.processAllAvailable)

    def stop(self) -> None:
        """End it; the batch that runs is done again when it is started anew."""
        self.query.stop()

    def drain(self) -> None:
        """End it after one more batch, in which no input waits for another: there will be no more input."""
        self.query.stop()
        self._note_natives()
        self._begin(drain=True)
        self._asked(lambda: self.query.awaitTermination())

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except StreamingQueryException as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> StreamsError:
        return self._broker.explain(error) or _own_error(error)

    # ---- looking inside ----------------------------------------------------------------------------------------

    def _note_natives(self) -> None:
        """Count what stages in Catalyst have read, which Spark tells after each batch; it forgets those long past."""
        if not self._natives or self._query is None:
            return
        with self._lock:
            for progress in self._query.recentProgress:
                counts = progress.observedMetrics
                told = [counts[native.observed].records for native in self._natives if native.observed in counts]
                # Spark also tells of a batch that is yet to come, that it has nothing to do.
                if told and progress.batchId > self._observed:
                    self._totals["records"] += sum(told)
                    self._observed = progress.batchId
                    self._warn_if_ahead(progress.eventTime.get("max"))
                    # It does not tell which of several aggregates was late for.
                    if late := sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators):
                        self._counts["late", ", ".join(filter(None, (n.aggregate for n in self._natives)))] += late
                        self._warn_of_late()

    def _warn_of_late(self) -> None:
        for (kind, step), count in self._counts.items():
            if kind == "late":
                self._late.note(step, count)

    def _warn_if_ahead(self, newest: str | None) -> None:
        """Warn where a batch of an aggregate in Catalyst had a record far beyond the wall clock, once for each leap."""
        time = 0 if newest is None else int(datetime.fromisoformat(newest).timestamp() * 1000)
        if time > max(self._far, system_clock() + HOUR_MS):
            self._far = time + HOUR_MS
            log.warning(
                "%s: event time leaps to %s, more than an hour beyond the wall clock: records before it count as late "
                "from now on, also after a restart. Refuse such records with Config(max_future=…)",
                ", ".join(filter(None, (n.aggregate for n in self._natives))),
                date_of(time),
            )

    def metrics(self) -> dict[str, Any]:
        """Counts since this handle was made: batches, records, dropped and late ones, in all and by step."""
        self._note_natives()
        with self._lock:
            return {
                "batches-total": self._totals["batches"],
                "records-total": self._totals["records"],
                "waiting-records": sum(self._waiting.values()),
                "state-rows": sum(self._rows.values()),
                **steps_of(self._counts),
            }

    def store(self, name: str) -> Any:
        """A store as the last batch left it, to read: all its shards together."""
        return self.stores.store(name)

    @property
    def stores(self) -> CommittedStores:
        """All stores, as the last batch left them."""
        return CommittedStores(
            self._spark, self._checkpoint, self._topology, self._stages, self._recorded.partitions
        )


class _shuffle_partitions:
    """While in it, queries that start have so many shuffle partitions; one at a time, since it is the session's."""

    _starting = threading.Lock()

    def __init__(self, spark: SparkSession, partitions: int) -> None:
        self._spark = spark
        self._partitions = partitions

    def __enter__(self) -> None:
        self._starting.acquire()
        self._before = self._spark.conf.get("spark.sql.shuffle.partitions")
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self._partitions))

    def __exit__(self, *exc: object) -> None:
        try:
            assert self._before is not None
            self._spark.conf.set("spark.sql.shuffle.partitions", self._before)
        finally:
            self._starting.release()


def _delivery(writer: Writer, batch_id: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The last step of a batch: what is for topics is written, what is for the driver goes on."""

    def deliver(batches: Iterable[Any]) -> Iterator[Any]:
        results: dict[tuple[int, int], list[tuple[int, str, bytes]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                if row["to"] == OUTPUT:
                    results.setdefault((row["by"], row["by_shard"]), []).append(
                        (row["sequence"], row["topic"], row["data"])
                    )
                elif row["to"] == REPORT:
                    yield pa.RecordBatch.from_pydict({"data": pa.array([row["data"]], pa.binary())})
        for (stage, shard), rows in results.items():
            rows.sort(key=lambda row: row[0])
            writer.write(stage, shard, batch_id, [(topic, unpack(data)) for _, topic, data in rows])

    return deliver


# The last line of a traceback: one of this package's errors, behind which Spark may put a code of its own, or another.
_RAISED = re.compile(r"headwater\.[\w.]+: (.+?)(?: SQLSTATE: \w+)*$")
_OTHER = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)(?:: .*)?")


def _own_error(error: Exception) -> StreamsError:
    """The StreamsError in an executor that ended a query, or what else there is to say."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    for line in reversed(text.splitlines()):
        found = _RAISED.search(line)
        if found is not None:
            return StreamsError(found[1])
    if "Python worker exited unexpectedly" in text:
        return StreamsError(
            "a Python process of Spark's has ended without a word: a function has ended it (os._exit()), it has "
            "crashed in native code, or there was no memory left. Spark's log may say more, above all with the setting "
            "spark.python.worker.faulthandler.enabled=true"
        )
    _, is_python, traceback = text.rpartition("An exception was thrown from the Python worker:")
    told = [line for line in traceback.splitlines() if _OTHER.fullmatch(line)]
    if is_python and told:
        places = re.findall(r'File "(.+)", line (\d+), in', traceback)
        at = f" at {places[-1][0]}:{places[-1][1]}" if places else ""
        return StreamsError(f"the query has failed{at} with {told[-1]}")
    return StreamsError(f"the query has failed: {text}")
