"""What is noted beside a checkpoint: who may go on from it, and what is said to those who may not. And that every stage
is in Spark's plan once, as the state in a checkpoint is that of a stage's only place there."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from headwater import Config, Json, StreamsBuilder, StreamsError, TimeWindows, Topology
from headwater.state.log import Log
from headwater.streams.spark.brokers import LogBroker
from headwater.streams.spark.query import SparkBackend, SparkQuery, plan_stages
from headwater.streams.spark.record import FILE, Recorded, take_up
from headwater.streams.spark.reset import open_spark_reset

# What a version noted that compared descriptions.
EARLIER = ("query", "app_id", "topology", "stages", "topics", "identities", "partitions", "clock")


def counting(name: str = "seen", by: str = "shop", *, filtered: bool = False, latest: bool = False) -> Topology:
    builder = StreamsBuilder(value=Json())
    orders = builder.stream("orders")
    seen = orders.group_by_key().count(store=name).to_stream()
    if filtered:
        seen = seen.filter(lambda user, count: count > 0)
    seen.to("per-user", value=Json())
    orders.group_by(lambda user, order: order["shop"], name=by).count(store="shops").to_stream().to("per-shop")
    if latest:
        orders.group_by_key().reduce(lambda old, new: new, store="latest")
    return builder.build()


def windowed(seconds: int) -> Topology:
    builder = StreamsBuilder(value=Json())
    windows = TimeWindows.of(timedelta(seconds=seconds))
    builder.stream("orders").group_by_key().windowed_by(windows).count(store="windows")
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

    def take(
        topology: Topology, app_id: str = "shop", partitions: int = 2, renamed: dict[str, str | None] | None = None
    ) -> Recorded:
        broker = LogBroker(f"log://{folder}/log")
        config = Config(app_id=app_id)
        stages = plan_stages(topology, config, broker.topics())
        now = Recorded.of(topology, config, stages, broker.identities, partitions)
        return take_up(spark, str(folder / "checkpoint"), now, renamed)

    return take


def test_what_has_not_changed_goes_on_under_the_same_id(noted: Callable[..., Recorded]) -> None:
    first = noted(counting())
    assert noted(counting()) == first
    # How the state is spread is settled; asking for something else does not lose it.
    assert noted(counting(), partitions=7).partitions == 2


def test_a_store_under_another_name_is_refused_until_the_user_says_which_it_is(
    folder: Path, noted: Callable[..., Recorded]
) -> None:
    noted(counting())
    before = (folder / "checkpoint" / FILE).read_bytes()
    with pytest.raises(StreamsError, match="store 'seen' is gone and 'counted', which is new, is like it") as refused:
        noted(counting("counted"))
    assert 'Config(renamed={"seen": "counted"})' in str(refused.value)
    assert "give this a new checkpoint (--checkpoint)" in str(refused.value)
    assert (folder / "checkpoint" / FILE).read_bytes() == before
    assert noted(counting("counted"), renamed={"seen": "counted"}).known().stores["counted"].kept == "seen"
    assert noted(counting("counted")).known().stores["counted"].kept == "seen"


def test_other_windows_under_the_same_name_are_refused(noted: Callable[..., Recorded]) -> None:
    noted(windowed(10))
    with pytest.raises(StreamsError, match="store 'windows': its windows were 10000 ms and are 60000 ms"):
        noted(windowed(60))


def test_a_harmless_edit_and_another_name_of_a_repartition_go_on(noted: Callable[..., Recorded]) -> None:
    first = noted(counting())
    assert noted(counting(filtered=True)).query == first.query
    assert noted(counting(by="market")).query == first.query


def test_a_store_that_was_taken_out_comes_back_empty_or_not_at_all(
    folder: Path, noted: Callable[..., Recorded]
) -> None:
    noted(counting(latest=True))
    assert noted(counting()).known().unused.keys() == {"latest"}
    with pytest.raises(StreamsError, match="store 'latest' was taken out of the application"):
        noted(counting(latest=True))
    with open_spark_reset(Config("shop"), f"log://{folder}/log", str(folder / "checkpoint"), unused=True) as reset:
        assert (reset.state, reset.stores) == ([], ("latest",))
        reset.run()
    # Its old rows are still in Spark's state, where nobody looks.
    assert noted(counting(latest=True)).known().stores["latest"].kept == "latest-2"


def test_what_an_earlier_version_noted_goes_on_and_is_checked_as_far_as_it_goes(
    folder: Path, noted: Callable[..., Recorded]
) -> None:
    first = noted(counting())
    record = folder / "checkpoint" / FILE
    earlier = {name: value for name, value in msgspec.json.decode(record.read_bytes()).items() if name in EARLIER}

    def leave() -> None:
        record.with_name(f".{FILE}.crc").unlink(missing_ok=True)
        record.write_bytes(msgspec.json.encode(earlier))

    leave()
    assert noted(counting(filtered=True)).query == first.query
    assert noted(counting()).identity is not None
    leave()
    with pytest.raises(StreamsError, match="store 'seen' is gone and 'counted', which is new, is like it"):
        noted(counting("counted"))


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
    for part in ("'market'", "'counted'", "had 2 partitions and now has 3", "deleted and made anew"):
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
    def run(topology: Topology, **settings: Any) -> SparkQuery:
        query = SparkBackend(spark).start(
            topology,
            Config(app_id="shop", **settings),
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
    # A store more, one under another name and a filter: it goes on from the same state.
    with Log.open(folder / "log") as log, log.partition("orders", 0) as partition:
        partition.append([(b"u", b'{"shop": "s0"}', 2000, ())])
    changed = run(counting("counted", filtered=True, latest=True), renamed={"seen": "counted"})
    assert changed.id == query.id
    assert (changed.store("counted").get("u"), changed.store("shops").get("s0")) == (7, 2)
    assert changed.store("latest").get("u") == {"shop": "s0"}
    builder = StreamsBuilder()
    builder.stream("orders").to("elsewhere")
    with pytest.raises(StreamsError, match="its stages were"):
        run(builder.build())
    with Log.open(folder / "log") as log:
        assert "elsewhere" not in {topic.name for topic in log.topics()}
