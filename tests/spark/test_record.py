"""What is noted beside a checkpoint: who may go on from it, and what is said to those who may not. And that every stage
is in Spark's plan once, as the state in a checkpoint is that of a stage's only place there."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import Config, Json, StreamsBuilder, StreamsError, Topology
from headwater.state.log import Log
from headwater.streams.spark.brokers import LogBroker
from headwater.streams.spark.query import SparkBackend, SparkQuery, plan_stages
from headwater.streams.spark.record import Recorded, take_up


def counting(name: str = "seen", by: str = "shop") -> Topology:
    builder = StreamsBuilder(value=Json())
    orders = builder.stream("orders")
    orders.group_by_key().count(store=name).to_stream().to("per-user", value=Json())
    orders.group_by(lambda user, order: order["shop"], name=by).count(store="shops").to_stream().to("per-shop")
    return builder.build()


def matching() -> Topology:
    builder = StreamsBuilder()
    builder.stream(re.compile("orders.*")).to("out")
    return builder.build()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Log.open(tmp_path / "log") as log:
        log.create_topic("orders", 2)
        with log.partition("orders", 0) as partition:
            partition.append([(b"u", b'{"shop": "s%d"}' % n, 1000 + n, ()) for n in range(6)])
    return tmp_path


@pytest.fixture
def noted(spark: SparkSession, folder: Path) -> Callable[..., Recorded]:
    """Take up the checkpoint in the folder, as a start does."""

    def take(topology: Topology, app_id: str = "shop", partitions: int = 2) -> Recorded:
        broker = LogBroker(f"log://{folder}/log")
        config = Config(app_id=app_id)
        stages = plan_stages(topology, config, broker.topics())
        now = Recorded.of(topology, config, stages, broker.identities, partitions)
        return take_up(spark, str(folder / "checkpoint"), now)

    return take


def test_what_has_not_changed_goes_on_under_the_same_id(noted: Callable[..., Recorded]) -> None:
    first = noted(counting())
    assert noted(counting()) == first
    # How the state is spread is settled; asking for something else does not lose it.
    assert noted(counting(), partitions=7).partitions == 2


def test_a_changed_topology_is_refused_with_the_lines_that_differ(noted: Callable[..., Recorded]) -> None:
    noted(counting())
    with pytest.raises(StreamsError, match="the topology has changed") as refused:
        noted(counting("counted"))
    told = [line.strip() for line in str(refused.value).splitlines()]
    assert [line[0] for line in told if re.search(r"stores: \[(seen|counted)\]", line)] == ["-", "+"]
    assert not any("[shops]" in line for line in told)
    assert "give this a new checkpoint (--checkpoint)" in told[-1]


def test_a_renamed_repartition_is_a_change(noted: Callable[..., Recorded]) -> None:
    noted(counting())
    with pytest.raises(StreamsError, match=r"-.*shop-repartition(.|\n)*\+.*market-repartition"):
        noted(counting(by="market"))


def test_more_partitions_are_refused_by_name(folder: Path, noted: Callable[..., Recorded]) -> None:
    noted(counting())
    with Log.open(folder / "log") as log:
        log.delete_topic("orders")
        log.create_topic("orders", 3)
    with pytest.raises(StreamsError, match="the topic 'orders' had 2 partitions and now has 3"):
        noted(counting())


def test_a_topic_made_anew_is_refused(folder: Path, noted: Callable[..., Recorded]) -> None:
    noted(counting())
    with Log.open(folder / "log") as log:
        log.delete_topic("orders")
        log.create_topic("orders", 2)
    with pytest.raises(StreamsError, match="the topic 'orders' has been deleted and made anew"):
        noted(counting())


def test_another_applications_checkpoint_is_refused(noted: Callable[..., Recorded]) -> None:
    noted(counting(), app_id="shop")
    with pytest.raises(StreamsError, match="the checkpoint of the application 'shop', not of 'market'"):
        noted(counting(), app_id="market")


def test_all_that_has_changed_is_told_at_once(folder: Path, noted: Callable[..., Recorded]) -> None:
    noted(counting())
    with Log.open(folder / "log") as log:
        log.delete_topic("orders")
        log.create_topic("orders", 3)
    with pytest.raises(StreamsError) as refused:
        noted(counting("counted"), app_id="market")
    for part in ("'market'", "[counted]", "had 2 partitions and now has 3", "deleted and made anew"):
        assert part in str(refused.value)


def test_topics_that_come_up_later_do_not_matter_to_a_pattern(folder: Path, noted: Callable[..., Recorded]) -> None:
    first = noted(matching())
    with Log.open(folder / "log") as log:
        log.create_topic("orders-dk", 2)
    assert noted(matching()).query == first.query
    with Log.open(folder / "log") as log:
        log.create_topic("orders-se", 3)
    with pytest.raises(StreamsError, match=r"its stages were {'0': 'task on 2'} and are now {'0': 'task on 3'}"):
        noted(matching())


def test_a_checkpoint_of_somebody_elses_query_is_refused(
    spark: SparkSession, folder: Path, noted: Callable[..., Recorded]
) -> None:
    (folder / "lines").mkdir()
    (folder / "lines" / "one.txt").write_text("line\n")
    foreign = spark.readStream.text(str(folder / "lines")).writeStream.format("noop").trigger(availableNow=True)
    foreign.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    with pytest.raises(StreamsError, match=r"a query that Headwater did not start: give another \(--checkpoint\)"):
        noted(counting())


def test_a_query_with_results_at_two_stages_has_each_once_and_refuses_to_be_changed(
    spark: SparkSession, folder: Path
) -> None:
    def run(topology: Topology) -> SparkQuery:
        query = SparkBackend(spark).start(
            topology,
            Config(app_id="shop"),
            broker=f"log://{folder}/log",
            checkpoint=folder / "checkpoint",
            trigger="available-now",
        )
        query.awaitTermination()
        return query

    query = run(counting())
    operators = [operator.operatorName for operator in query.lastProgress.stateOperators]
    assert operators == ["transformWithStateInPandasExec"] * 2
    plan = query.query._jsq.explainInternal(False)
    assert len(re.findall(r"\bTransformWithStateInPySpark\b", plan)) == 2
    again = run(counting())
    assert again.id == query.id
    assert (again.store("seen").get("u"), again.store("shops").get("s0")) == (6, 1)
    builder = StreamsBuilder()
    builder.stream("orders").to("elsewhere")
    with pytest.raises(StreamsError, match=r"the topology has changed(.|\n)*\+ .*elsewhere"):
        run(builder.build())
    with Log.open(folder / "log") as log:
        assert "elsewhere" not in {topic.name for topic in log.topics()}
