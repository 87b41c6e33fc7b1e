"""The plan of a query as DataFrames: source rows, the intake, one `transformWithStateInPandas` per stage with state,
one behind the other. It owns how the pieces of a query are put together; what happens in them, they know.

The chain is a line. A stage hands on the rows that are not for it, since joining two ends of a fork would put every
stage before the fork into Spark's plan twice, each time with a state of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.streams.set_back import SetBack
from headwater.streams.spark.counts import Reports, reported
from headwater.streams.spark.intake import IntakePlan, intake
from headwater.streams.spark.record import check_state
from headwater.streams.spark.rows import COLUMNS, REGISTER, SCHEMA, Row, slots
from headwater.streams.spark.shard import Routes, ShardPlan, run_shard
from headwater.streams.spark.stages import Stage, Stages
from headwater.streams.spark.state import SparkCells

__all__ = ["build_chain", "intake_plan", "routes_of", "shard_plan", "variable"]

def variable(stage: Stage) -> str:
    """The name of a stage's state variable in Spark."""
    return "cells_" + stage.name.replace(".", "_")


def routes_of(stages: Stages) -> Routes:
    """Where records of each topic go within the query."""
    readers = {topic: [stage.number for stage in stages.readers(topic)] for topic in stages.internal}
    return Routes(readers, dict(stages.partitions))


def build_chain(
    stages: Stages,
    sources: DataFrame,
    ticks: DataFrame | None,
    partitions: int,
    *,
    unnumbered: Iterable[str] = (),
    at_once: int | None = None,
    set_back: SetBack | None = None,
    reports: Reports | None = None,
    run: str | None = None,
    recorded: bytes | None = None,
) -> DataFrame:
    """The rows that a query's stages make of source rows, over so many Spark partitions.

    What shards report is among the rows, and goes to `reports` too if that is given. With `recorded`, which says what
    the query is, state that was kept by another is refused; where there is a file for that, it is not needed.
    """
    routes = routes_of(stages)
    first = stages.chained[0].number if recorded is not None else None
    # Spark measures an Arrow batch after each row it adds, and goes through all nulls in a column of lists for that.
    headers = F.coalesce("headers", F.array().cast(sources.schema["headers"].dataType))
    rows = sources.withColumn("headers", headers).mapInArrow(intake(intake_plan(stages, routes), first), SCHEMA)
    if ticks is not None:
        rows = rows.unionByName(ticks)
    for stage in stages.chained:
        plan = replace(shard_plan(stages, stage, routes, unnumbered, at_once), set_back=set_back, run=run)
        keys = slots(stage.shards, partitions)
        shard = F.when(F.col("to") == stage.number, F.col("shard")).otherwise(F.col("by_shard") % stage.shards)
        # In front of them the register, whose place is the same whatever the shards are.
        places = [REGISTER, *keys] if stage.number == first else keys
        slot = F.element_at(F.array(*map(F.lit, places)), shard + 1 + len(places) - len(keys))
        rows = (
            rows.withColumn("slot", slot)
            .groupBy("slot")
            .transformWithStateInPandas(
                StageProcessor(plan, variable(stage), {key: at for at, key in enumerate(keys)}, reports, recorded),
                SCHEMA,
                "update",
                "none",
            )
        )
    return rows


def shard_plan(
    stages: Stages, stage: Stage, routes: Routes, unnumbered: Iterable[str], at_once: int | None
) -> ShardPlan:
    """What the shards of a stage must know."""
    return ShardPlan(
        stage.number,
        None if stage.spec is None else stage.spec.dumps(),
        None if stage.global_task is None else stage.global_task.dumps(),
        stages.global_topics,
        # Equal timestamps: what was read before what was made of it, as when all stages are one task.
        tuple(sorted(stage.topics, key=stages.internal.__contains__)),
        stage.copied,
        stage.circle,
        stage.answers,
        stage.tag,
        routes,
        frozenset(unnumbered),
        at_once,
    )


def intake_plan(stages: Stages, routes: Routes) -> IntakePlan:
    """What the intake must know."""
    stateful: dict[str, list[tuple[int, int | None]]] = {}
    stateless: dict[str, list[tuple[int, bytes]]] = {}
    for stage in stages.stages:
        for topic in stage.topics:
            if stage.kind == "task":
                stateful.setdefault(topic, []).append((stage.number, None))
            elif stage.spec is not None:
                stateless.setdefault(topic, []).append((stage.number, stage.spec.dumps()))
        if stage.global_task is not None:
            for topic in stages.global_topics:
                stateful.setdefault(topic, []).append((stage.number, stage.shards))
    patterns = tuple(
        (source.pattern, stage.number)
        for stage in stages.chained
        for source in (stage.spec.topology.sources() if stage.spec is not None else ())
        if source.pattern is not None
    )
    return IntakePlan(_frozen(stateful), _frozen(stateless), patterns, routes)


def _frozen(readers: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    return {topic: tuple(them) for topic, them in readers.items()}


class StageProcessor(StatefulProcessor):
    """A stage as Spark runs it: called once per shard and batch."""

    def __init__(
        self,
        plan: ShardPlan,
        variable: str,
        shards: Mapping[int, int],
        reports: Reports | None = None,
        recorded: bytes | None = None,
    ) -> None:
        self._plan = plan
        self._variable = variable
        self._shards = shards
        self._reports = reports
        self._recorded = recorded

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._cells = SparkCells(handle.getMapState(self._variable, "key binary", "value binary"))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        if self._recorded is not None:
            check_state(self._cells, self._recorded)
        if key[0] == REGISTER:
            for _ in rows:
                pass
            return
        shard = self._shards[key[0]]
        own: list[Row] = []
        for frame in rows:
            is_own = frame["to"] == self._plan.stage
            if not is_own.all():
                yield frame.loc[~is_own, COLUMNS]
            if is_own.any():
                own += frame.loc[is_own, COLUMNS].itertuples(index=False, name=None)
        if own:
            results = list(run_shard(self._plan, shard, own, self._cells))
            if self._reports is not None:
                self._reports.add(reported(results))
            yield pd.DataFrame(results, columns=COLUMNS)

    def close(self) -> None:
        """Nothing is held."""
