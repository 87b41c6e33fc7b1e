"""What fits to the record of an application, and what is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headwater import (
    Config,
    Float64,
    Int64,
    Json,
    KeyValue,
    Serde,
    SessionWindows,
    Str,
    StreamsBuilder,
    TimeWindowed,
    TimeWindows,
    Topology,
    Window,
)
from headwater.errors import TopologyError
from headwater.streams.identity import Fit, Identity, adopted, compare, first, from_description, identity_of, serde_name
from headwater.streams.plan import plan


def built(topology: Topology, partitions: int = 2, **config: Any) -> Identity:
    planned = plan(topology, Config("app", **config), lambda topic: partitions)
    return identity_of(topology, Config("app"), planned.partitions)


def counting(store: Any = "counts", topic: str = "in", filtered: bool = False) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(topic)
    if filtered:
        stream = stream.filter(lambda key, value: value is not None)
    stream.group_by_key().count(store=store).to_stream().to("out")
    return builder.build()


def windowed(seconds: int = 10, *, advance: int | None = None, grace: int = 0) -> Topology:
    builder = StreamsBuilder()
    step = None if advance is None else timedelta(seconds=advance)
    windows = TimeWindows.of(timedelta(seconds=seconds), advance=step, grace=timedelta(seconds=grace))
    builder.stream("in").group_by_key().windowed_by(windows).count(store="w")
    return builder.build()


def refused(before: Identity, now: Identity, **renamed: str | None) -> str:
    with pytest.raises(TopologyError) as caught:
        compare(before, now, renamed)
    return str(caught.value)


def fit(before: Identity, now: Identity, **renamed: str | None) -> Fit:
    return compare(before, now, renamed)


def test_the_same_and_a_harmless_edit_fit() -> None:
    before = built(counting())
    assert fit(before, built(counting())) == Fit(before)
    after = fit(before, built(counting(filtered=True))).identity
    assert after == before
    assert after.fingerprint == before.fingerprint


def test_partitions_added_under_state_are_refused_by_name() -> None:
    said = refused(built(counting(), 1), built(counting(), 4))
    assert "topic 'in' had 1 partitions and has 4" in said
    assert "'counts'" in said
    assert "headwater reset" in said


def test_a_narrower_input_of_a_step_with_state_that_grows_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("a").merge(builder.stream("b")).group_by_key().count(store="counts")
    topology = builder.build()
    before = identity_of(topology, Config("app"), {"a": 4, "b": 1})
    said = refused(before, identity_of(topology, Config("app"), {"a": 4, "b": 4}))
    assert "topic 'b' had 1 partitions and has 4" in said


def test_an_application_without_state_may_get_more_partitions() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda key, value: True).to("out")
    topology = builder.build()
    fitting = fit(built(topology, 1), built(topology, 4))
    assert fitting.identity.parts[0].tasks == 4
    assert fitting.identity.fingerprint == built(topology, 1).fingerprint


def test_a_repartition_topic_that_would_get_other_partitions_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda key, value: value).count(store="counts")
    topology = builder.build()
    said = refused(built(topology, 1), built(topology, 4))
    assert "'counts-repartition' has 1 partitions, but the topology needs 4" in said
    assert "2. " not in said


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (windowed(10), windowed(60), "its windows were 10000 ms and are 60000 ms"),
        (windowed(10), windowed(10, advance=5), "its windows were 10000 ms and are 10000 ms every 5000 ms"),
        (windowed(10, grace=60), windowed(10, grace=10), "its retention was 70000 ms and is 20000 ms"),
        (counting(KeyValue("counts")), counting(KeyValue("counts", value=Json())), "was Int64 and is Json"),
        (counting(KeyValue("counts")), counting(KeyValue("counts", key=Json())), "its key serde was Str and is Json"),
    ],
)
def test_a_changed_store_under_its_old_name_is_refused(before: Topology, now: Topology, said: str) -> None:
    fault = refused(built(before), built(now))
    assert said in fault
    assert "give the store another name" in fault
    assert "headwater reset" in fault


def test_a_changed_kind_and_a_changed_gap_are_refused() -> None:
    def topology(kind: Any) -> Topology:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().windowed_by(kind).count(store="w")
        return builder.build()

    sessions = built(topology(SessionWindows.of(timedelta(seconds=5))))
    tumbling = built(topology(TimeWindows.of(timedelta(seconds=5))))
    assert "its kind was session and is window" in refused(sessions, tumbling)
    longer = built(topology(SessionWindows.of(timedelta(seconds=9))))
    assert "gap of 5000 ms and are sessions with a gap of 9000 ms" in refused(sessions, longer)


def test_a_longer_retention_fits() -> None:
    after = fit(built(windowed(10, grace=10)), built(windowed(10, grace=60))).identity
    assert after.stores["w"].retention_ms == 70_000


def test_a_window_store_of_ones_own_is_compared_by_its_size() -> None:
    def topology(seconds: int) -> Topology:
        store = Window("w", size=timedelta(seconds=seconds), retention=timedelta(hours=1))
        found = Topology().add_source("in", "in").add_processor("p", lambda: None, "in")
        return found.add_store(store, "p")

    assert "its windows were 1000 ms and are 2000 ms" in refused(built(topology(1)), built(topology(2)))


def two(second: str | None = "other", serde: Serde | None = None) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().count(store="counts")
    if second is not None:
        stream.group_by_key().aggregate(
            lambda: 0.0, lambda key, value, total: total + 1, store=KeyValue(second, value=serde or Float64())
        )
    return builder.build()


def test_a_new_store_starts_empty_and_one_that_is_gone_is_kept_aside() -> None:
    added = fit(built(two(None)), built(two()))
    assert added.new == ("other",)
    assert added.identity.stores["other"].kept == ""
    gone = fit(added.identity, built(two(None)))
    assert gone.gone == ("other",)
    assert gone.identity.unused["other"].kept == "other"
    said = refused(gone.identity, built(two()))
    assert "store 'other' was taken out of the application and has missed what happened since" in said
    assert "headwater reset --unused" in said


def test_a_renamed_store_is_kept_under_its_old_name_and_never_taken_for_another() -> None:
    before = built(counting("old"))
    renamed = fit(before, built(counting("new")), old="new")
    assert renamed.renamed == (("old", "new"),)
    assert renamed.identity.stores["new"].kept == "old"
    # Again with the same setting, and without it.
    for setting in ({"old": "new"}, {}):
        assert compare(renamed.identity, built(counting("new")), setting).identity == renamed.identity
    again = fit(renamed.identity, built(counting("newest")), new="newest").identity
    assert again.stores["newest"].kept == "old"
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().count(store="new")
    stream.group_by_key().aggregate(lambda: "", lambda k, v, a: a, store=KeyValue("old", value=Str()))
    both = fit(renamed.identity, built(builder.build())).identity
    assert both.stores["new"].kept == "old"
    assert both.stores["old"].kept == "old-2"


def test_a_store_that_is_gone_and_one_like_it_are_not_guessed() -> None:
    said = refused(built(counting("old")), built(counting("new")))
    assert "store 'old' is gone and 'new', which is new, is like it" in said
    assert 'Config(renamed={"old": "new"})' in said
    assert 'Config(renamed={"old": None})' in said
    empty = fit(built(counting("old")), built(counting("new")), old=None)
    assert empty.new == ("new",)
    assert empty.identity.unused.keys() == {"old"}


def test_generated_names_that_shift_are_not_guessed() -> None:
    said = refused(built(counting(None)), built(counting(None, filtered=True)))
    first_name, second_name = "KSTREAM-AGGREGATE-STATE-STORE-0000000001", "KSTREAM-AGGREGATE-STATE-STORE-0000000002"
    assert f'Config(renamed={{"{first_name}": "{second_name}"}})' in said


def test_a_repartition_topic_goes_along_with_its_store() -> None:
    def topology(store: str) -> Topology:
        builder = StreamsBuilder()
        builder.stream("in").group_by(lambda key, value: value).count(store=store)
        return builder.build()

    before = built(topology("old"))
    found = fit(before, built(topology("new")), old="new").identity
    assert found.topics["new-repartition"].kept == "old-repartition"
    kept = adopted(topology("new"), found)
    assert kept.internal_topics.keys() == {"old-repartition"}
    assert [source.topics for source in kept.sources()] == [("in",), ("old-repartition",)]
    assert kept.stores["new"].rows == "old"
    assert topology("new").stores["new"].rows == "new"


def test_a_repartition_topic_whose_number_shifts_is_not_guessed() -> None:
    def topology(filtered: bool) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        if filtered:
            stream = stream.filter(lambda key, value: True)
        stream.select_key(lambda key, value: value).repartition().group_by_key().count(store="counts")
        return builder.build()

    before, now = built(topology(False)), built(topology(True))
    said = refused(before, now)
    (old,), (new,) = before.topics, now.topics
    assert f'Config(renamed={{"{old}": "{new}"}})' in said
    assert compare(before, now, {old: new}).identity.topics[new].kept == old


def test_a_sub_topology_is_known_by_what_it_reads_and_keeps() -> None:
    def topology(first: bool) -> Topology:
        builder = StreamsBuilder()
        if first:
            builder.stream("more").to("elsewhere")
        builder.stream("in").group_by_key().count(store="counts")
        return builder.build()

    before = built(topology(False))
    found = fit(before, built(topology(True))).identity
    kept = adopted(topology(True), found)
    tasks = plan(kept, Config("app"), lambda topic: 1).tasks
    assert {task.task_id: [store.name for store in task.stores()] for task in tasks} == {"1_0": [], "0_0": ["counts"]}
    back = fit(found, built(topology(False))).identity
    assert [(part.number, part.gone) for part in back.parts] == [(0, False), (1, True)]
    assert not adopted(topology(False), back).numbers


def test_sub_topologies_that_are_put_together_or_split_are_refused() -> None:
    def topology(together: bool) -> Topology:
        builder = StreamsBuilder()
        a, b = builder.stream("a"), builder.stream("b")
        if together:
            a.merge(b).to("out")
        else:
            a.to("out")
            b.to("out")
        return builder.build()

    one, apart = built(topology(True)), built(topology(False))
    assert "is one sub-topology now" in refused(apart, one)
    assert "it is now split into" in refused(one, apart)


def test_renamed_names_what_is_there() -> None:
    before = built(counting("old"))
    assert "no such store or repartition topic" in refused(before, built(counting("new")), old="nwe")
    assert "'counts' is still in the topology" in refused(built(two(None)), built(two()), counts="other")
    # A name that this application never had: another installation has.
    assert fit(before, built(counting("old")), former="old").identity == before


def test_a_changelog_that_does_not_have_the_rows_is_refused_where_it_counts() -> None:
    before, now = built(counting(KeyValue("counts", changelog=False))), built(counting(KeyValue("counts")))
    assert compare(before, now).identity.stores["counts"].changelog == "own"
    with pytest.raises(TopologyError, match="its changelog was none and is a topic of its own"):
        compare(before, now, changelogs=True)
    assert compare(now, before, changelogs=True)


def test_what_an_earlier_version_left_is_checked_as_far_as_it_goes() -> None:
    topology = counting("old")
    before = from_description("app", topology.describe(), {0: 2})
    after = fit(before, built(topology)).identity
    assert after.stores["old"].formerly == ("node KSTREAM-AGGREGATE-0000000001", "shared KTABLE-TOSTREAM-0000000002")
    assert msgspec.structs.replace(after.stores["old"], formerly=()) == built(topology).stores["old"]
    assert "it had 2 tasks and now has 4" in refused(before, built(topology, 4))
    assert 'Config(renamed={"old": "new"})' in refused(before, built(counting("new")))
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda key, value: value).count(store="counts")
    described = from_description("app", builder.build().describe())
    assert described.topics.keys() == {"counts-repartition"}
    assert [part.topics for part in described.parts] == [{"in": 0}, {"counts-repartition": 0}]


def test_a_first_start_fits() -> None:
    assert first(built(counting())).new == ("counts",)


def test_serdes_in_words_that_stay_the_same() -> None:
    @dataclass(frozen=True)
    class Mine(Serde):
        inner: Serde
        schema: str

    @dataclass
    class Order:
        user: str

    assert serde_name(Json(type=Order)) == "Json(Order)"
    assert serde_name(Json(type=dict[str, Order])) == "Json(dict[str, Order])"
    assert serde_name(TimeWindowed(Int64(), timedelta(seconds=1))) == "TimeWindowed(Int64, 1000)"
    assert serde_name(Mine(Str(), "x" * 100)) == serde_name(Mine(Str(), "x" * 100))
    assert serde_name(Mine(Str(), "x" * 100)) != serde_name(Mine(Str(), "y" * 100))
