"""Which stages a topology becomes on Spark."""

import re

import pytest

from headwater import Config, KeyValue, Processor, StreamsBuilder, Topology, TopologyError
from headwater.streams.spark.query import plan_stages
from headwater.streams.spark.stages import Stage, Stages


def planned(builder: StreamsBuilder | Topology, partitions: int = 1, **topics: int) -> Stages:
    topology = builder.build() if isinstance(builder, StreamsBuilder) else builder
    read = {topic for source in topology.sources() for topic in source.topics} - set(topology.internal_topics)
    return plan_stages(topology, Config(app_id="app"), {**dict.fromkeys(read, partitions), **topics})


def kinds(stages: Stages) -> list[tuple[str, str]]:
    return [(stage.name, stage.kind) for stage in stages.stages]


def steps(stage: Stage) -> set[str]:
    assert stage.spec is not None
    return {name for name in stage.spec.nodes if name not in stage.muted}


def test_a_chain_that_keeps_nothing_runs_where_records_are_read() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda k, v: True).map_values(str).to("out")
    assert kinds(planned(builder)) == [("0", "arrow")]


@pytest.mark.parametrize("how", ["two topics", "pattern", "timestamps", "processor", "global table"])
def test_what_needs_order_time_or_tables_is_a_task(how: str) -> None:
    builder = StreamsBuilder()
    match how:
        case "two topics":
            builder.stream(["a", "b"]).to("out")
        case "pattern":
            builder.stream(re.compile("a|b")).to("out")
        case "timestamps":
            builder.stream("a", timestamp=lambda record, before: before).to("out")
        case "processor":
            builder.stream("a").process(Processor).to("out")
        case "global table":
            table = builder.global_table("g")
            builder.stream("a").join(table, lambda v, g: v, select=lambda k, v: k).to("out")
    assert [kind for _, kind in kinds(planned(builder, a=1, b=1))] == ["task"]


def test_a_repartition_is_two_stages_in_order() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda k, v: v, name="g").count(store="c").to_stream().to("out")
    stages = planned(builder, 3)
    assert kinds(stages) == [("0", "arrow"), ("1", "task")]
    assert [stage.shards for stage in stages.stages] == [3, 3]
    assert [stage.number for stage in stages.readers("app-g-repartition")] == [1]


def test_stages_come_after_those_that_feed_them() -> None:
    builder = StreamsBuilder()
    late = builder.stream("b").group_by_key().count(store="late")
    early = builder.stream("a").select_key(lambda k, v: v)
    early.join(late, lambda v, n: n, name="j").to("out")
    stages = planned(builder)
    at = {topic: stage.number for stage in stages.stages for topic in stage.topics}
    assert at["a"] < at["app-j-repartition"] == at["b"]


def test_a_foreign_key_join_is_three_stages_and_the_last_keeps_a_copy_of_the_left_table() -> None:
    builder = StreamsBuilder()
    left = builder.table("left", store="left")
    left.to_stream().peek(lambda k, v: None, name="look").to("copy")
    right = builder.table("right", store="right")
    left.join(right, lambda a, b: (a, b), foreign_key=lambda v: v, store="joined", name="fk").to_stream().to("out")
    stages = planned(builder)
    assert [stage.name for stage in stages.stages] == ["0.0", "1", "0.1"]
    first, other, last = stages.stages
    assert "look" in steps(first)
    assert "look" not in steps(last)
    assert last.copied == {"left"}
    assert [stage.stores() for stage in (first, last)] == [["left"], ["joined"]]
    assert "right" in other.stores()


def test_foreign_key_joins_of_foreign_key_joins_go_round_again() -> None:
    builder = StreamsBuilder()
    a, b, c = (builder.table(name, store=name) for name in "abc")
    ab = a.join(b, lambda x, y: x, foreign_key=lambda v: v, name="one", store="ab")
    ab.join(c, lambda x, y: x, foreign_key=lambda v: v, name="two", store="abc").to_stream().to("out")
    names = [stage.name for stage in planned(builder).stages]
    assert len(names) == 5
    assert [name for name in names if name.startswith("0")] == ["0.0", "0.1", "0.2"]


def test_a_table_joined_with_itself_by_a_foreign_key_goes_round_in_one_sub_topology() -> None:
    builder = StreamsBuilder()
    staff = builder.table("staff", store="staff")
    staff.join(staff, lambda x, boss: boss, foreign_key=lambda v: v, name="boss").to_stream().to("out")
    assert [stage.name for stage in planned(builder).stages] == ["0.0", "0.1", "0.2"]


def test_a_loop_through_a_store_is_refused_by_name() -> None:
    builder = StreamsBuilder()
    builder.add_store(KeyValue("shared"))
    before = builder.stream("in").process(Processor, stores=["shared"], name="before")
    before.repartition(name="r").process(Processor, stores=["shared"], name="after").to("out")
    with pytest.raises(TopologyError, match=r"step 'before' takes part in a loop .* --on local") as error:
        planned(builder)
    assert "'after'" in str(error.value)


def test_a_global_table_that_no_step_reads_is_kept_by_a_stage_of_its_own() -> None:
    builder = StreamsBuilder()
    builder.global_table("g", store="g")
    builder.stream("in").to("out")
    assert kinds(planned(builder)) == [("0", "arrow"), ("global", "task")]


def test_a_missing_source_topic_is_named_with_the_command_that_makes_it() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(TopologyError, match=r"'in', which is not there: create it \(headwater topics create in\)"):
        plan_stages(builder.build(), Config(), {})
