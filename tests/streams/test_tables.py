"""Table sources, filters, mapped values and group-by: what they keep, emit, hide and count."""

from collections.abc import Callable
from datetime import timedelta

from headwater import Config, Int64, Json, KTable, Record, Str, StreamsBuilder, TopologyTestDriver, Versioned

MS = timedelta(milliseconds=1)


def outputs(driver: TopologyTestDriver) -> list[tuple[object, object, int]]:
    """What has come out since the last call, as (key, value, timestamp)."""
    return [(record.key, record.value, record.timestamp) for record in driver.output("out").read_all()]


def run(
    build: Callable[[KTable], KTable], updates: list[tuple[object, object, int]], **source: object
) -> tuple[list[tuple[object, object, int]], int]:
    """What a table made of one over `in` emits for the updates, and how many records were dropped."""
    builder = StreamsBuilder(key=Str(), value=Int64())
    build(builder.table("in", **source)).to_stream().to("out")  # type: ignore[arg-type]
    with TopologyTestDriver(builder.build()) as driver:
        for key, value, at in updates:
            driver.input("in").send(key, value, at=at)
        return outputs(driver), driver.metrics()["dropped-records-total"]


def test_a_source_emits_every_update_and_drops_null_keys() -> None:
    emitted, dropped = run(
        lambda table: table, [("a", 1, 5), (None, 2, 6), ("a", 3, 4), ("a", None, 7), ("b", None, 8)]
    )
    assert emitted == [("a", 1, 5), ("a", 3, 4), ("a", None, 7), ("b", None, 8)]
    assert dropped == 1


def test_a_versioned_source_refuses_what_is_older_than_its_retention_and_counts_it_as_late() -> None:
    builder = StreamsBuilder(key=Str(), value=Int64())
    builder.table("in", store=Versioned("tab", retention=100 * MS)).to_stream().to("out")
    with TopologyTestDriver(builder.build(), Config("app", late="late")) as driver:
        for value, at in ((1, 200), (2, 150), (3, 99), (4, 100)):
            driver.input("in").send("a", value, at=at)
        assert outputs(driver) == [("a", 1, 200), ("a", 2, 150), ("a", 4, 100)]
        assert driver.metrics()["dropped-records-total"] == 1
        assert driver.output("late", Str(), Int64()).read_all() == [Record("a", 3, 99)]
        assert driver.store("tab").get("a")[:2] == (1, 200)
        assert driver.store("tab").get("a", 149)[:2] == (4, 100)


def test_headers_of_the_record_travel_with_the_update() -> None:
    builder = StreamsBuilder(key=Str(), value=Int64())
    builder.table("in", store="tab").filter(lambda key, value: value > 1).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("a", 2, at=1, headers=(("h", b"1"), ("h", None)))
        assert driver.output("out").read_all() == [Record("a", 2, 1, (("h", b"1"), ("h", None)))]


def test_a_filter_that_knows_no_old_values_emits_a_deletion_for_every_hidden_update() -> None:
    emitted, _ = run(
        lambda table: table.filter(lambda key, value: value >= 5), [("a", 1, 1), ("a", 5, 2), ("a", None, 3)]
    )
    assert emitted == [("a", None, 1), ("a", 5, 2), ("a", None, 3)]


def test_a_filter_over_a_kept_table_is_silent_about_what_was_and_remains_hidden() -> None:
    updates = [("a", 1, 1), ("a", 2, 2), ("a", 5, 3), ("a", 1, 4), ("a", None, 5)]
    emitted, _ = run(lambda table: table.filter(lambda key, value: value >= 5), updates, store="tab")
    assert emitted == [("a", 5, 3), ("a", None, 4)]


def test_filter_not_shows_the_others_and_any_true_value_counts() -> None:
    emitted, _ = run(
        lambda table: table.filter_not(lambda key, value: value % 2), [("a", 1, 1), ("a", 2, 2)], store="tab"
    )
    assert emitted == [("a", 2, 2)]


def test_a_kept_filter_holds_what_it_shows() -> None:
    builder = StreamsBuilder(key=Str(), value=Int64())
    builder.table("in").filter(lambda key, value: value >= 5, store="shown").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for key, value, at in (("a", 5, 1), ("b", 4, 2), ("c", 6, 3), ("a", 1, 4)):
            driver.input("in").send(key, value, at=at)
        assert list(driver.store("shown").all(timestamps=True)) == [("c", (6, 3))]


def test_mapped_values_never_see_a_deletion_and_may_make_one() -> None:
    emitted, _ = run(
        lambda table: table.map_values(lambda key, value: None if value == 9 else value + len(key)),
        [("ab", 1, 1), ("ab", 9, 2), ("ab", None, 3)],
    )
    assert emitted == [("ab", 3, 1), ("ab", None, 2), ("ab", None, 3)]


def test_a_predicate_that_raises_abandons_its_branch_only() -> None:
    def picky(key: str, value: int) -> bool:
        if value == 13:
            raise ValueError("unlucky")
        return True

    builder = StreamsBuilder(key=Str(), value=Int64())
    table = builder.table("in", store="tab")
    table.filter(picky, store="shown").to_stream().to("out")
    table.to_stream().to("all")
    with TopologyTestDriver(builder.build(), Config("app", on_processing_error="skip")) as driver:
        for value, at in ((1, 1), (13, 2), (2, 3)):
            driver.input("in").send("a", value, at=at)
        assert outputs(driver) == [("a", 1, 1), ("a", 2, 3)]
        assert [record.value for record in driver.output("all").read_all()] == [1, 13, 2]
        assert driver.metrics()["dropped-records-total"] == 1


def grouped(
    f: Callable[[str, object], object], updates: list[tuple[str, object, int]]
) -> list[tuple[object, object, int]]:
    builder = StreamsBuilder(key=Str(), value=Json())
    (
        builder.table("in")
        .group_by(f, key=Json(), value=Json(), name="grp")
        .aggregate(str, lambda key, value, total: total + f"+{value}", lambda key, value, total: total + f"-{value}")
        .to_stream()
        .to("out", key=Json(), value=Json())
    )
    with TopologyTestDriver(builder.build()) as driver:
        for key, value, at in updates:
            driver.input("in").send(key, value, at=at)
        return outputs(driver)


def test_within_a_group_one_result_between_groups_the_old_one_first() -> None:
    updates = [("a", ["x", 1], 1), ("a", ["x", 2], 2), ("a", ["y", 3], 3), ("a", None, 4)]
    assert grouped(lambda key, value: tuple(value), updates) == [  # type: ignore[arg-type]
        ("x", "+1", 1),
        ("x", "+1-1+2", 2),
        ("x", "+1-1+2-2", 3),
        ("y", "+3", 3),
        ("y", "+3-3", 4),
    ]


def test_a_half_without_group_key_or_value_is_left_out() -> None:
    updates = [("a", [None, 1], 1), ("a", ["x", 2], 2), ("a", ["x", None], 3), ("a", ["y", 4], 4)]
    assert grouped(lambda key, value: tuple(value), updates) == [  # type: ignore[arg-type]
        ("x", "+2", 2),
        ("x", "+2-2", 3),
        ("y", "+4", 4),
    ]


def test_equal_values_of_different_types_are_different_groups() -> None:
    assert grouped(lambda key, value: (value, "v"), [("a", 1, 1), ("a", True, 2), ("a", 1.0, 3)]) == [
        (1, "+v", 1),
        (1, "+v-v", 2),
        (True, "+v", 2),
        (True, "+v-v", 3),
        (1.0, "+v", 3),
    ]
