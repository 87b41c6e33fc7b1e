"""How a topology runs on Spark, for people to read: its stages, and where each step runs. It owns the text alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.streams.spark.brokers import open_broker
from headwater.streams.spark.query import plan_natively, query_rows
from headwater.streams.spark.stages import Stage, Stages

__all__ = ["describe", "describe_stages"]

_WHERE = {
    "native": "in Catalyst, without Python",
    "arrow": "in Arrow batches where the records are read, before any shuffle",
    "task": "in the task, inside transformWithStateInPandas",
}


def describe(spark: SparkSession, topology: Topology, config: Config, broker: str, *, plan: bool = False) -> str:
    """The stages of a topology over a broker's topics, with `plan` also Spark's own plan."""
    there = open_broker(broker, config)
    planned, natives, reasons = plan_natively(spark, topology, config, there.topics())
    text = describe_stages(planned, reasons)
    if plan:
        rows = query_rows(spark, topology, config, planned, natives, there)
        text += f"\n\n{_spark_plan(rows)}"
    return text


def describe_stages(stages: Stages, reasons: Mapping[str, str] = MappingProxyType({})) -> str:
    """Stages in the order they run within a batch: what each reads, where its steps run, what it keeps.

    `reasons` say why one does not run in Catalyst.

    >>> from headwater import Config, StreamsBuilder
    >>> from headwater.streams.spark.describe import describe_stages
    >>> from headwater.streams.spark.query import plan_stages
    >>> builder = StreamsBuilder()
    >>> counts = builder.stream("in").group_by(lambda k, v: v, name="by").count(store="counts")
    >>> counts.to_stream(name="s").to("out", name="o")
    >>> print(describe_stages(plan_stages(builder.build(), Config(app_id="app"), {"in": 4})))
    Stage 0: 4 shards, in Arrow batches where the records are read, before any shuffle
      reads: in
      steps: KSTREAM-SOURCE-0000000000, by, by-repartition-filter, by-repartition-sink
    Stage 1: 4 shards, in the task, inside transformWithStateInPandas
      reads: app-by-repartition
      steps: by-repartition-source, KSTREAM-AGGREGATE-0000000002, s, o
      stores: counts
    """
    return "\n".join(line for stage in stages.stages for line in _lines(stage, reasons.get(stage.name)))


def _lines(stage: Stage, reason: str | None) -> list[str]:
    shards = "1 shard" if stage.shards == 1 else f"{stage.shards} shards"
    lines = [f"Stage {stage.name}: {shards}, {_WHERE[stage.kind]}"]
    if reason is not None:
        lines.append(f"  not in Catalyst: {reason}")
    if stage.topics:
        lines.append(f"  reads: {', '.join(stage.topics)}")
    if stage.spec is not None:
        own = [name for name in stage.spec.nodes if name not in stage.muted]
        lines.append(f"  steps: {', '.join(own)}")
        if stage.muted:
            copies = [name for name in stage.spec.nodes if name in stage.muted]
            lines.append(f"  keeps copies of: {', '.join(copies)}")
    kept = stage.stores()
    if stage.global_task is not None:
        kept = [*kept, *(f"{store.name} (a copy in every shard)" for store in stage.global_task.stores())]
    if kept:
        lines.append(f"  stores: {', '.join(kept)}")
    return lines


def _spark_plan(frame: DataFrame) -> str:
    """Spark's own plan of a query."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    text: str = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended")
    return text
