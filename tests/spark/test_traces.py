"""The golden traces on Spark: seed 0 step by step, but for a few steps in a row on one topic, which share a batch;
seeds 1 and 2 of topologies with one input and no repartition cut into batches; traces given from outside step by step.
All of them with HEADWATER_SPARK=all (`make conformance-spark`), in every run a third of the topologies, and a few cut.
"""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conformance.replay import (
    TRACES,
    Step,
    Trace,
    build,
    check,
    check_batches,
    describe_fault,
    load_trace,
    replay,
    trace_files,
)
from tests.conformance.test_partitions import repartitions
from tests.spark.player import SparkPlayer

ALL = os.environ.get("HEADWATER_SPARK") == "all"
OWN = "HEADWATER_TRACES" not in os.environ
BATCHES = 5
# How many steps in a row on one topic share a batch.
SHARED = 4

# One of each kind of step: what is left out differs from one of these in an option, not in the way through Spark.
REPRESENTATIVE = {
    "cogroup-tumbling",
    "deserialization-log-and-continue",
    "emit-close-session",
    "emit-close-tumbling-interval",
    "flat-count-cached",
    "foreign-key-join",
    "foreign-key-left-join",
    "group-by-count",
    "headers-aggregate",
    "hopping-aggregate",
    "process-headers-and-metadata",
    "process-punctuate-both",
    "process-shared-store",
    "processing-exception-continue",
    "session-aggregate",
    "sliding-aggregate",
    "stream-flat-map",
    "stream-global-table-left-join",
    "stream-merge",
    "stream-multiple-topics",
    "stream-peek-foreach",
    "stream-repartition",
    "stream-split-branch",
    "stream-stream-join-repartitioned",
    "stream-stream-outer-join-interval",
    "stream-stream-self-join-optimized",
    "stream-table-grace-left-join",
    "stream-table-inner-join-repartitioned",
    "stream-through-topic",
    "stream-to-dynamic-topic",
    "stream-versioned-table-join",
    "suppress-max-records-emit-early",
    "suppress-window-close-session",
    "table-group-by-aggregate",
    "table-table-join-then-group-by",
    "timestamp-fail-on-invalid",
    "timestamp-use-partition-time",
    "topology-low-level",
    "versioned-table-aggregate",
    "word-count-cached",
}


# Cut into batches in every run: windows, sessions, what is held back, and both clocks.
CUT_ALWAYS = {
    "hopping-aggregate.1",
    "process-punctuate-both.1",
    "session-aggregate.2",
    "suppress-window-close-session.2",
}


def chosen(trace: Trace) -> bool:
    if ALL or not OWN:
        return True
    return trace.name in CUT_ALWAYS if is_cut(trace) else trace.topology in REPRESENTATIVE


def is_cut(trace: Trace) -> bool:
    """Whether a trace is cut into batches: its steps are not told apart then."""
    return OWN and not trace.name.endswith(".0")


def can_be_cut(trace: Trace) -> bool:
    inputs = {step["in"]["topic"] for step in trace.steps if "in" in step}
    return len(inputs) == 1 and not repartitions(trace) and not trace.global_topics and not fails(trace)


def fails(trace: Trace) -> bool:
    """Whether a step ends the query: of its batch nothing is written then, also nothing of steps before it."""
    return any("error" in step for step in trace.steps)


def shared(trace: Trace) -> list[list[Step]]:
    """The steps in order, a few that follow each other on one topic together."""
    batches: list[list[Step]] = []
    for step in trace.steps:
        before = batches[-1] if batches else []
        together = "in" in step and before and "in" in before[0] and before[0]["in"]["topic"] == step["in"]["topic"]
        if not together or len(before) >= SHARED:
            batches.append([])
        batches[-1].append(step)
    return batches


def batches_of(trace: Trace) -> list[list[Step]]:
    """The steps in order, inputs that follow each other together, but in five batches at least."""
    size = max(1, len(trace.steps) // BATCHES)
    batches: list[list[Step]] = []
    for step in trace.steps:
        alone = "in" not in step
        if alone or not batches or "in" not in batches[-1][0] or len(batches[-1]) >= size:
            batches.append([])
        batches[-1].append(step)
    return batches


STEP_BY_STEP = [p for p in trace_files() if chosen(t := load_trace(p)) and not is_cut(t)]
CUT = [p for p in trace_files() if chosen(t := load_trace(p)) and is_cut(t) and can_be_cut(t)]


def test_the_representative_topologies_are_there() -> None:
    known = {load_trace(path).topology for path in TRACES.glob("*.0.json")}
    assert known >= REPRESENTATIVE
    assert not OWN or {path.stem for path in CUT} >= CUT_ALWAYS
    assert 3 * len(REPRESENTATIVE) >= len(known)


@pytest.mark.parametrize("path", [pytest.param(path, id=f"spark-{path.stem}") for path in STEP_BY_STEP])
def test_step_by_step(spark: SparkSession, path: Path) -> None:
    trace = load_trace(path)
    topology, case = build(trace)
    with SparkPlayer(spark, trace, topology, case) as player:
        if OWN and not fails(trace):
            play(trace, player, shared(trace))
            assert describe_fault(trace, player.describe()) is None
        else:
            check(trace, replay(trace, player), "Spark")


@pytest.mark.parametrize("path", [pytest.param(path, id=f"spark-batches-{path.stem}") for path in CUT])
def test_in_batches(spark: SparkSession, path: Path) -> None:
    trace = load_trace(path)
    topology, case = build(trace)
    with SparkPlayer(spark, trace, topology, case) as player:
        batches = batches_of(trace)
        assert len(batches) >= min(BATCHES, len(trace.steps))
        play(trace, player, batches)


def play(trace: Trace, player: SparkPlayer, batches: list[list[Step]]) -> None:
    observed = [player.play_all(batch) for batch in batches]
    check_batches(trace, batches, observed, player.contents(trace), "Spark")
