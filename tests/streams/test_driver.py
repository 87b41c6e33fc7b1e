"""The driver: topics, partitions, the clock, restarts, and what it says when it is used wrongly."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    Config,
    Int64,
    KeyValue,
    Processor,
    Record,
    SerdeError,
    Str,
    StreamsBuilder,
    StreamsError,
    Suppress,
    TimeWindows,
    Topology,
    TopologyError,
    TopologyTestDriver,
    Versioned,
    Window,
    Windowed,
)
from headwater.dsl.partitioner import partition_for
from headwater.state.memory import MemoryBackend


def counting() -> Topology:
    """Counts per first letter of the value, through a repartition topic."""
    builder = StreamsBuilder(key=Str(), value=Str())
    grouped = builder.stream("in").group_by(lambda key, value: value[0], name="by-letter")
    grouped.count(store="counts").to_stream().to("out", value=Int64())
    return builder.build()


def copying(**to: Any) -> Topology:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").to("out", **to)
    return builder.build()


def pairs(driver: TopologyTestDriver, topic: str, partition: int | None = None) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in driver.output(topic).read_all(partition)]


# ---- topics


def test_unknown_topics_are_refused_with_the_known_ones() -> None:
    with TopologyTestDriver(counting(), Config("app")) as driver:
        with pytest.raises(StreamsError, match=r"nobody reads the topic 'inn': .* app-by-letter-repartition, in"):
            driver.input("inn")
        with pytest.raises(StreamsError, match=r"nobody writes the topic 'outt': .* app-by-letter-repartition, out"):
            driver.output("outt")
        with pytest.raises(StreamsError, match="there is no store 'count', only counts"):
            driver.store("count")


def test_a_value_the_serde_cannot_write_names_the_topic() -> None:
    with (
        TopologyTestDriver(counting()) as driver,
        pytest.raises(StreamsError, match=r"topic 'in': Str\(\) cannot encode"),
    ):
        driver.input("in").send("k", 5, at=0)


def test_a_serde_that_cannot_read_names_the_topic_and_loses_nothing() -> None:
    with TopologyTestDriver(copying()) as driver:
        driver.input("in").send("k", "v", at=0)
        with pytest.raises(SerdeError, match=r"topic 'out': Int64\(\) cannot decode .* give output\(\) the serde"):
            driver.output("out", value=Int64()).read_all()
        assert pairs(driver, "out") == [("k", "v")]
        assert pairs(driver, "out") == []


@pytest.mark.parametrize("at", ["5", 1.5, True, 2**63, timedelta(0)])
def test_a_time_that_is_none_is_refused(at: Any) -> None:
    with TopologyTestDriver(copying()) as driver:
        with pytest.raises(StreamsError, match=r"topic 'in': at= must be an int, epoch milliseconds.*write int\("):
            driver.input("in").send("k", "v", at=at)
        with pytest.raises(StreamsError, match=r"topic 'in': at= must be an int"):
            driver.send_all([("in", "k", "v", at)])
        assert pairs(driver, "out") == []


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"a": b"1"}, r"topic 'in': headers= must be a tuple of .* write tuple\(….items\(\)\)"),
        ([("a", "1")], r"one is \('a', '1'\): the name is text, the content bytes or None"),
        (("ab",), "one is 'ab'"),
        (None, r"but is None: write \(\) for none"),
        ("ab", r"but is 'ab'"),
    ],
)
def test_headers_that_are_none_are_refused(headers: Any, said: str) -> None:
    with TopologyTestDriver(copying()) as driver:
        with pytest.raises(StreamsError, match=said):
            driver.input("in").send("k", "v", at=0, headers=headers)
        with pytest.raises(StreamsError, match=said):
            driver.send_all([("in", "k", "v", 0, headers)])
        driver.input("in").send("k", "v", at=0, headers=[("a", b"1")])  # type: ignore[arg-type]
        assert driver.output("out").read_all() == [Record("k", "v", 0, (("a", b"1"),))]


def test_the_driver_says_what_it_needs() -> None:
    with pytest.raises(
        StreamsError, match=r"runs a Topology, but this is .*StreamsBuilder.*: call its build\(\) first"
    ):
        TopologyTestDriver(StreamsBuilder())  # type: ignore[arg-type]
    with pytest.raises(StreamsError, match=r"config= must be a Config, but is \{'a': 1\}: .*Config.from_kafka"):
        TopologyTestDriver(copying(), {"a": 1})  # type: ignore[arg-type]


def test_steps_may_be_named_like_metrics() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").group_by_key().count(store="c", name="dropped-records-total").to_stream(name="steps")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send(None, "v", at=0)
        metrics = driver.metrics()
        assert metrics["dropped-records-total"] == 1
        assert metrics["steps"]["dropped-records-total"] == {"dropped-records-total": 1, "late-records-total": 0}
        assert metrics["steps"]["steps"] == {"dropped-records-total": 0, "late-records-total": 0}


def test_print_to_a_file_appends_or_says_why_it_cannot(tmp_path: Path) -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").print(file=str(tmp_path / "lines"), label="in")
    topology = builder.build()
    for value in ("a", "b"):
        with TopologyTestDriver(topology) as driver:
            driver.input("in").send("k", value, at=0)
    assert (tmp_path / "lines").read_text() == "[in]: k, a\n[in]: k, b\n"
    builder = StreamsBuilder()
    builder.stream("in").print(file=str(tmp_path / "no" / "lines"), name="show")
    with pytest.raises(
        StreamsError, match=r"step 'show': print\(\) cannot write to file='.*/no/lines': .*No such file"
    ):
        TopologyTestDriver(builder.build())


def test_internal_topics_have_the_application_in_front_and_can_be_read() -> None:
    with TopologyTestDriver(counting(), Config("app")) as driver:
        driver.input("in").send("k", "word", at=0)
        assert pairs(driver, "app-by-letter-repartition") == [("w", "word")]
        assert pairs(driver, "by-letter-repartition") == []


def test_read_all_takes_what_it_gives() -> None:
    with TopologyTestDriver(copying()) as driver:
        driver.input("in").send("k", "v", at=3, headers=(("a", None),))
        assert driver.output("out").read_all() == [Record("k", "v", 3, (("a", None),))]
        assert driver.output("out").read_all() == []


def test_without_a_time_a_record_has_the_clocks() -> None:
    with TopologyTestDriver(copying(), now=7) as driver:
        driver.advance(timedelta(milliseconds=5))
        driver.input("in").send("k", "v")
        assert driver.output("out").read_all()[0].timestamp == 12


def test_patterns_and_topics_named_by_functions() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream(re.compile("in-.*")).to(lambda key, value, context: f"from-{context.topic}")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in-1").send("k", "v", at=0)
        driver.input("in-2").send("k", "w", at=0)
        assert pairs(driver, "from-in-1") == [("k", "v")]
        assert pairs(driver, "from-in-2") == [("k", "w")]
        with pytest.raises(StreamsError, match="nobody reads"):
            driver.input("other")


# ---- order


def test_one_by_one_in_the_order_sent_and_all_at_once_by_timestamp() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("a").merge(builder.stream("b")).to("out")
    topology = builder.build()
    records = [("a", "k", "1", 30), ("a", "k", "2", 5), ("b", "k", "3", 10), ("b", "k", "4", 40)]
    with TopologyTestDriver(topology) as driver:
        for topic, key, value, at in records:
            driver.input(topic).send(key, value, at=at)
        assert [value for _, value in pairs(driver, "out")] == ["1", "2", "3", "4"]
        driver.send_all([(*record, ()) for record in records])
        assert [value for _, value in pairs(driver, "out")] == ["3", "1", "2", "4"]


def test_an_idle_input_holds_records_back_until_the_clock_has_moved() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("a").merge(builder.stream("b")).to("out")
    config = Config(max_task_idle=timedelta(milliseconds=100))
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.input("a").send("k", "1", at=0)
        assert pairs(driver, "out") == []
        driver.restart()
        driver.advance(timedelta(milliseconds=99))
        assert pairs(driver, "out") == []
        driver.advance(timedelta(milliseconds=100))
        assert pairs(driver, "out") == [("k", "1")]


# ---- partitions


def test_records_are_partitioned_by_key_in_turn_or_as_told() -> None:
    with TopologyTestDriver(copying(), partitions=4) as driver:
        driver.input("in").send("alice", "x", at=0)
        assert pairs(driver, "out", partition_for(b"alice", 4)) == [("alice", "x")]
        for value in "abcde":
            driver.input("in").send(None, value, at=0)
        assert [pairs(driver, "out", p) for p in range(4)] == [
            [(None, "a"), (None, "e")],
            [(None, "b")],
            [(None, "c")],
            [(None, "d")],
        ]
        driver.input("in").send("alice", "y", at=0, partition=3)
        # The sink partitions by the key again, wherever the record came from.
        assert pairs(driver, "out", partition_for(b"alice", 4)) == [("alice", "y")]
        with pytest.raises(StreamsError, match="the partitions 0 to 3, and no 4"):
            driver.input("in").send("k", "v", at=0, partition=4)


def test_a_users_partitioner_wins_and_is_checked() -> None:
    def choose(topic: str, key: str, value: str, partitions: int) -> int | None:
        return None if value == "key" else int(value)

    with TopologyTestDriver(copying(partitioner=choose), partitions=4) as driver:
        driver.input("in").send("k", "2", at=0)
        driver.input("in").send("alice", "key", at=0)
        assert pairs(driver, "out", 2) == [("k", "2")]
        assert pairs(driver, "out", partition_for(b"alice", 4)) == [("alice", "key")]
        with pytest.raises(StreamsError, match="must give a partition of 'out', 0 to 3, or None, but gave 9"):
            driver.input("in").send("k", "9", at=0)
    for wrong in ("1", 1.0, True):
        topology = copying(partitioner=lambda topic, key, value, partitions, wrong=wrong: wrong)
        with (
            TopologyTestDriver(topology, partitions=4) as driver,
            pytest.raises(StreamsError, match=f"must give a partition of 'out', 0 to 3, or None, but gave {wrong!r}"),
        ):
            driver.input("in").send("k", "v", at=0)


def test_windowed_keys_go_where_their_inner_key_goes() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(milliseconds=10)))
    windowed.count(store="counts").to_stream().to("out")
    with TopologyTestDriver(builder.build(), partitions=4) as driver:
        for at in (1, 11, 21):
            driver.input("in").send("alice", "v", at=at)
        assert [key.start for key, _ in pairs(driver, "out", partition_for(b"alice", 4))] == [0, 10, 20]


def test_repartitioning_brings_equal_keys_together_and_the_store_shows_all_parts() -> None:
    words = ["apple", "bee", "ant", "cat", "axe", "bat", "dog"]
    with TopologyTestDriver(counting(), partitions=4) as driver:
        for number, word in enumerate(words):
            driver.input("in").send(str(number), word, at=number)
        assert sorted(pairs(driver, "out")) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
        store = driver.store("counts")
        assert list(store.all()) == [("a", 3), ("b", 2), ("c", 1), ("d", 1)]
        assert list(store.range("b", "c", timestamps=True)) == [("b", (2, 5)), ("c", (1, 3))]
        assert (store.get("a"), store.get("z")) == (3, None)
        store.put("a", 10, timestamp=9)
        driver.input("in").send("x", "any", at=20)
        assert pairs(driver, "out") == [("a", 11)]


def test_topics_that_meet_must_be_partitioned_alike() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    table = builder.table("table", store="t")
    stream = builder.stream("in").select_key(lambda key, value: value).repartition(name="mine", partitions=3)
    stream.join(table, lambda left, right: left).to("out")
    topology = builder.build()
    with pytest.raises(TopologyError, match=r"\[3\] of repartition topic \[mine-repartition\] doesn't match .* \[4\]"):
        TopologyTestDriver(topology, partitions=4)
    with TopologyTestDriver(topology, partitions=3) as driver:
        driver.input("table").send("v", "row", at=0)
        driver.input("in").send("k", "v", at=1)
        assert pairs(driver, "out") == [("v", "v")]


# ---- global tables, stores


def test_a_global_table_is_seen_at_once_by_every_task() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    countries = builder.global_table("countries", store="countries")
    builder.stream("in").join(countries, lambda left, right: right, select=lambda key, value: value).to("out")
    with TopologyTestDriver(builder.build(), partitions=3) as driver:
        driver.send_all([("countries", "de", "Germany", 0), *(("in", str(i), "de", i) for i in range(6))])
        assert sorted(pairs(driver, "out")) == [(str(i), "Germany") for i in range(6)]
        assert driver.store("countries").get("de") == "Germany"
        driver.restart()
        driver.input("in").send("9", "de", at=9)
        assert pairs(driver, "out") == [("9", "Germany")]


class Stores(Processor):
    def process(self, record: Record) -> None:
        kv, window, versions = (self.context.store(name) for name in ("kv", "window", "versions"))
        kv.put(record.key, record.value)
        window.put(record.key, record.value, 10)
        window.put(record.key, record.value + "!", 20)
        versions.put(record.key, record.value, record.timestamp)


def stores() -> Topology:
    topology = Topology().add_source("in", "in", value=Str()).add_processor("p", Stores, "in")
    topology.add_store(KeyValue("kv", value=Str()), "p")
    minute = timedelta(minutes=1)
    topology.add_store(Window("window", size=timedelta(milliseconds=5), retention=minute, value=Str()), "p")
    topology.add_store(Versioned("versions", retention=minute, value=Str()), "p")
    return topology


@pytest.mark.parametrize("partitions", [1, 3])
def test_stores_as_users_see_them(partitions: int) -> None:
    with TopologyTestDriver(stores(), partitions=partitions) as driver:
        for key in "bac":
            driver.input("in").send(key, f"v{key}", at=5)
        driver.input("in").send("a", "later", at=7)
        kv, window, versions = (driver.store(name) for name in ("kv", "window", "versions"))
        assert list(kv.all()) == [("a", "later"), ("b", "vb"), ("c", "vc")]
        for key, _ in kv.all():
            kv.delete(key)
        assert list(kv.all()) == []
        with pytest.raises(StreamsError, match="keeps no timestamps"):
            kv.get("a", timestamps=True)
        assert window.get("b", 20) == "vb!"
        assert list(window.fetch("b", 11, 20)) == [(Windowed("b", 20, 25), "vb!")]
        assert [key for key, _ in window.all()] == [Windowed(k, s, s + 5) for k in "abc" for s in (10, 20)]
        assert versions.get("a") == ("later", 7, None)
        assert versions.get("a", as_of=6) == ("va", 5, None)
        assert versions.get("a", as_of=4) is None
        assert list(versions.all(timestamps=True)) == [("a", ("later", 7)), ("b", ("vb", 5)), ("c", ("vc", 5))]


def test_the_inner_store_of_a_step_is_not_shown() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    table = builder.table("in", store="t")
    table.suppress(Suppress.until_time_limit(timedelta(seconds=1)), name="hold").to_stream().to("out")
    topology = builder.build()
    [buffer] = [name for name, spec in topology.stores.items() if spec.kind == "suppressed"]
    with TopologyTestDriver(topology) as driver, pytest.raises(StreamsError, match="inner store of a step"):
        driver.store(buffer)


def test_a_key_or_value_that_does_not_fit_names_the_store() -> None:
    with TopologyTestDriver(stores()) as driver:
        kv, window, versions = (driver.store(name) for name in ("kv", "window", "versions"))
        for name, wrong in (
            ("kv", lambda: kv.get(5)),
            ("kv", lambda: kv.put("k", 5)),
            ("kv", lambda: kv.delete(5)),
            ("kv", lambda: kv.range(1, 2)),
            ("window", lambda: window.get(5, 0)),
            ("window", lambda: window.put("k", 5, 0)),
            ("window", lambda: list(window.fetch(5, 0, 1))),
            ("versions", lambda: versions.get(5)),
            ("versions", lambda: versions.put("k", 5, 0)),
        ):
            with pytest.raises(SerdeError, match=rf"store '{name}': Str\(\) cannot encode int \d"):
                wrong()


def test_a_result_that_a_steps_store_cannot_keep_names_the_store_and_the_remedy() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").group_by_key().aggregate(int, lambda key, value, total: total + 1, store="totals")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(StreamsError, match=r"store 'totals': Str\(\) cannot encode int 1: .* value=.* store=") as caught,
    ):
        driver.input("in").send("k", "v", at=0)
    assert isinstance(caught.value.__cause__, SerdeError)


def test_a_store_that_no_step_uses_is_not_called_unknown() -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.add_store(KeyValue("idle"))
    builder.stream("in").to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(StreamsError, match="no step uses the store 'idle'"),
    ):
        driver.store("idle")


# ---- processors, restart, the end


def test_process_values_must_keep_the_key() -> None:
    class Rekeys(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.replace(key="other"))

    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").process_values(Rekeys).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(StreamsError, match="must keep the key 'k'"):
        driver.input("in").send("k", "v", at=0)


def test_forwarding_to_an_unknown_child_lists_the_known_ones() -> None:
    class Lost(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record, to="nowhere")

    topology = Topology().add_source("in", "in", value=Str()).add_processor("p", Lost, "in")
    topology.add_sink("one", "a", "p").add_sink("two", "b", "p")
    with TopologyTestDriver(topology) as driver, pytest.raises(StreamsError, match="no child 'nowhere', only one, two"):
        driver.input("in").send("k", "v", at=0)


@pytest.mark.parametrize("memory", [True, False])
def test_a_restart_changes_nothing_and_keeps_the_counts(memory: bool) -> None:
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=Int64())
    with TopologyTestDriver(builder.build(), memory=memory) as driver:
        driver.input("in").send("a", "v", at=1)
        driver.input("in").send(None, "v", at=1)
        driver.restart()
        driver.input("in").send("a", "v", at=2)
        driver.input("in").send(None, "v", at=1)
        assert pairs(driver, "out") == [("a", 1), ("a", 2)]
        assert driver.store("counts").get("a", timestamps=True) == (2, 2)
        assert driver.metrics()["dropped-records-total"] == 2


CLOSED: list[str] = []


class Closing(Processor):
    def process(self, record: Record) -> None:
        raise ValueError(record.value)

    def close(self) -> None:
        CLOSED.append("closed")


def test_a_driver_that_failed_can_be_closed_and_closes_its_processors() -> None:
    CLOSED.clear()
    topology = Topology().add_source("in", "in", value=Str()).add_processor("p", Closing, "in")
    driver = TopologyTestDriver(topology)
    with pytest.raises(StreamsError):
        driver.input("in").send("k", "v", at=0)
    driver.close()
    driver.close()
    assert CLOSED == ["closed"]
    with pytest.raises(StreamsError, match="the driver is closed"):
        driver.advance(timedelta(0))


def test_rows_on_disk_go_with_the_driver() -> None:
    driver = TopologyTestDriver(counting(), memory=False)
    assert driver._directory is not None
    path = Path(driver._directory.name)
    driver.input("in").send("k", "apple", at=1)
    assert (path / "0_0").is_dir()
    driver.close()
    assert not path.exists()


def test_rows_can_live_anywhere() -> None:
    opened: dict[str, list[str]] = {}

    def backend(task_id: str, stores: Any) -> MemoryBackend:
        opened[task_id] = list(stores)
        return MemoryBackend(stores)

    with TopologyTestDriver(counting(), partitions=2, backend=backend) as driver:
        driver.input("in").send("k", "apple", at=1)
        assert pairs(driver, "out") == [("a", 1)]
    assert opened == {"0_0": ["|task"], "0_1": ["|task"], "1_0": ["counts", "|task"], "1_1": ["counts", "|task"]}
