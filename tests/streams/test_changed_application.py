"""A changed application on the embedded log: what is said, and that nothing is lost, doubled or overwritten."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    Admin,
    Config,
    Float64,
    KeyValue,
    Processor,
    Producer,
    Record,
    Str,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from headwater.errors import StateError, StreamsError, TopologyError
from headwater.state.rocks import RocksBackend
from headwater.streams.app import App
from headwater.streams.changes import TASK, memory_key
from headwater.streams.log_record import LogRecord
from headwater.streams.reset import open_reset
from headwater.streams.run import open_app


class Shop:
    """An application `shop` on a log in a folder, reading `in`."""

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.folder = folder
        self.broker = f"log://{folder}/log"
        Admin(self.broker).create_topic("in", partitions)

    def send(self, *keys: str, at: int = 0) -> None:
        with Producer(self.broker) as producer:
            for key in keys:
                producer.send("in", key=key, value=key, timestamp=at)

    def app(self, topology: Topology, **settings: Any) -> App:
        return open_app(topology, Config("shop", **settings), self.broker)

    def rows(self, topology: Topology, *stores: str, **settings: Any) -> list[dict[Any, Any]]:
        """Process what is there, and return the rows of stores."""
        with self.app(topology, **settings) as app:
            app.wait_idle()
            return [dict(app.store(store).all()) for store in stores]

    def refused(self, topology: Topology, **settings: Any) -> str:
        """Start, be refused, and leave everything as it was."""
        before = self.bytes()
        with pytest.raises(StreamsError) as caught:
            self.app(topology, **settings).start()
        assert self.bytes() == before
        return str(caught.value)

    def bytes(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(self.folder.rglob("*"))
        }

    def reset_unused(self, topology: Topology) -> tuple[str, ...]:
        with open_reset(topology, Config("shop"), self.broker, unused=True) as reset:
            reset.run()
            return reset.stores


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def counting(
    store: str | None = "counts", *, kept: Callable[[Any, Any], bool] | None = None, other: str | None = None
) -> Topology:
    builder = StreamsBuilder(value=Str())
    stream = builder.stream("in")
    if kept is not None:
        stream = stream.filter(kept)
    stream.group_by_key().count(store=store)
    if other is not None:
        stream.group_by_key().aggregate(
            lambda: 0.0, lambda key, value, total: total + 1, store=KeyValue(other, value=Float64())
        )
    return builder.build()


def windowed(seconds: int) -> Topology:
    builder = StreamsBuilder(value=Str())
    windows = TimeWindows.of(timedelta(seconds=seconds))
    builder.stream("in").group_by_key().windowed_by(windows).count(store="windows")
    return builder.build()


def test_partitions_added_under_state_are_refused_by_name(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    keys = [f"key-{number}" for number in range(20)]
    shop.send(*keys)
    assert shop.rows(counting(), "counts") == [dict.fromkeys(keys, 1)]
    Admin(shop.broker).alter_topic("in", partitions=4)
    said = shop.refused(counting())
    assert "topic 'in' had 1 partitions and has 4" in said
    assert "'counts'" in said


def test_partitions_added_while_it_runs_are_refused_by_name(shop: Shop) -> None:
    shop.send("a")
    app = shop.app(counting())
    app.start()
    app.wait_idle()
    Admin(shop.broker).alter_topic("in", partitions=4)
    with pytest.raises(TopologyError, match="topic 'in' had 1 partitions and has 4"):
        app.join()


def test_an_application_without_state_takes_more_partitions(shop: Shop) -> None:
    def topology() -> Topology:
        builder = StreamsBuilder(value=Str())
        builder.stream("in").to("out")
        return builder.build()

    shop.send("a")
    shop.rows(topology())
    Admin(shop.broker).alter_topic("in", partitions=4)
    shop.send(*"bcdefgh")
    with shop.app(topology()) as app:
        app.wait_idle()
        assert len(app.metrics()["tasks"]) == 4
        assert app.metrics()["records-total"] == 7


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (windowed(10), windowed(60), "its windows were 10000 ms and are 60000 ms"),
        (counting(), counting("windows", other="counts"), "its value serde was Int64 and is Float64"),
        (windowed(10), counting("windows"), "its kind was window, timestamped and is timestamped"),
    ],
)
def test_a_changed_store_under_its_old_name_is_refused(shop: Shop, before: Topology, now: Topology, said: str) -> None:
    shop.send("a")
    store = next(iter(before.stores))
    rows = shop.rows(before, store)
    assert said in shop.refused(now)
    # It is all there for the one it belongs to.
    assert shop.rows(before, store) == rows


def test_a_harmless_edit_keeps_state_and_runs_beside_the_old_one(shop: Shop) -> None:
    shop.send("a", "b")
    with shop.app(counting()) as old:
        old.wait_idle()
        with shop.app(counting(kept=lambda key, value: key != "b")) as new:
            assert new.state == "running"
    shop.send("a", "b")
    assert shop.rows(counting(kept=lambda key, value: key != "b"), "counts") == [{"a": 2, "b": 1}]


def test_one_that_does_not_fit_cannot_run_beside_the_old_one(shop: Shop) -> None:
    with shop.app(counting()), pytest.raises(TopologyError, match="is running with another topology"):
        shop.app(counting(other="totals")).start()


def test_stores_are_added_taken_out_and_do_not_come_back_stale(shop: Shop) -> None:
    shop.send("a")
    shop.rows(counting())
    shop.send("a")
    assert shop.rows(counting(other="totals"), "counts", "totals") == [{"a": 2}, {"a": 1.0}]
    shop.send("a")
    assert shop.rows(counting(), "counts") == [{"a": 3}]
    said = shop.refused(counting(other="totals"))
    assert "store 'totals' was taken out of the application" in said
    assert "headwater reset --unused" in said
    shop.send("a")
    assert shop.rows(counting(), "counts") == [{"a": 4}]
    assert shop.reset_unused(counting()) == ("totals",)
    assert shop.reset_unused(counting()) == ()
    shop.send("a")
    assert shop.rows(counting(other="totals"), "counts", "totals") == [{"a": 5}, {"a": 1.0}]


def test_a_renamed_store_goes_on_with_its_rows(shop: Shop) -> None:
    shop.send("a")
    shop.rows(counting())
    shop.send("a")
    said = shop.refused(counting("sums"))
    assert 'Config(renamed={"counts": "sums"})' in said
    assert shop.rows(counting("sums"), "sums", renamed={"counts": "sums"}) == [{"a": 2}]
    shop.send("a")
    assert shop.rows(counting("sums"), "sums", renamed={"counts": "sums"}) == [{"a": 3}]
    assert shop.rows(counting("sums", other="counts"), "sums", "counts") == [{"a": 3}, {}]


def test_generated_names_that_shift_are_refused_until_the_user_decides(shop: Shop) -> None:
    names = ["KSTREAM-AGGREGATE-STATE-STORE-0000000001", "KSTREAM-AGGREGATE-STATE-STORE-0000000002"]
    shop.send("a")
    assert shop.rows(counting(None), names[0]) == [{"a": 1}]
    edited = counting(None, kept=lambda key, value: True)
    assert f'Config(renamed={{"{names[0]}": "{names[1]}"}})' in shop.refused(edited)
    shop.send("a")
    assert shop.rows(edited, names[1], renamed={names[0]: names[1]}) == [{"a": 2}]


def leave_as_an_earlier_version(shop: Shop, topology: Topology, now: str = "", then: str = "") -> None:
    """Make the state what an earlier version left: a description and no record, and memory by the names of steps."""
    directory = shop.folder / "log/apps/shop"
    (directory / "identity").unlink()
    (directory / "topology.txt").write_text(topology.describe())
    if now:
        backend = RocksBackend(directory / "tasks/0_0", [TASK], others=True)
        (row,) = backend.get_many(TASK, [memory_key(now)])
        assert row is not None
        backend.write({TASK: {memory_key(now): None, memory_key(then): row}})
        backend.close()


@pytest.mark.parametrize("earlier", [False, True])
def test_closed_windows_are_not_emitted_again_when_names_shift(shop: Shop, earlier: bool) -> None:
    def topology(filtered: bool) -> Topology:
        builder = StreamsBuilder(value=Str())
        stream = builder.stream("in")
        if filtered:
            stream = stream.filter(lambda key, value: True)
        windows = TimeWindows.of(timedelta(seconds=10))
        counts = stream.group_by_key().windowed_by(windows).emit_strategy("on-close").count(store="windows")
        counts.to_stream(lambda window, count: window.key).to("out")
        return builder.build()

    shop.send("a", at=1000)
    shop.send("a", at=11_000)
    at_once = timedelta(0)
    shop.rows(topology(False), window_emit_interval=at_once)
    if earlier:
        leave_as_an_earlier_version(shop, topology(False), "step of windows", "node KSTREAM-AGGREGATE-0000000001")
    shop.send("b", at=12_000)
    # Late: its window is closed, whatever the step is called.
    shop.send("a", at=2_000)
    shop.rows(topology(True), window_emit_interval=at_once)
    assert [one.end for one in Admin(shop.broker).describe("out").partitions] == [1]


def test_records_on_their_way_through_a_repartition_topic_survive_its_new_name(shop: Shop) -> None:
    def topology(store: str) -> Topology:
        builder = StreamsBuilder(value=Str())
        builder.stream("in").group_by(lambda key, value: value).count(store=store)
        return builder.build()

    shop.send("a", "b")
    shop.rows(topology("counts"), "counts")
    # One that its sub-topology has not seen yet.
    with Producer(shop.broker) as producer:
        producer.send("shop-counts-repartition", key="a", value="a", timestamp=0)
    assert shop.rows(topology("sums"), "sums", renamed={"counts": "sums"}) == [{"a": 2, "b": 1}]
    assert [info.name for info in Admin(shop.broker).topics()] == ["in", "shop-counts-repartition"]


def test_a_sub_topology_added_before_another_does_not_take_its_state(shop: Shop) -> None:
    def topology(first: bool) -> Topology:
        builder = StreamsBuilder(value=Str())
        if first:
            builder.stream("more").group_by_key().count(store="mores")
        builder.stream("in").group_by_key().count(store="counts")
        return builder.build()

    Admin(shop.broker).create_topic("more")
    with Producer(shop.broker) as producer:
        producer.send("more", key="m", value="m", timestamp=0)
    shop.send("a")
    shop.rows(topology(False))
    shop.send("a")
    assert shop.rows(topology(True), "counts", "mores") == [{"a": 2}, {"m": 1}]
    shop.send("a")
    assert shop.rows(topology(False), "counts") == [{"a": 3}]
    assert "store 'mores' was taken out" in shop.refused(topology(True))
    assert shop.reset_unused(topology(False)) == ("mores",)
    assert sorted(path.name for path in (shop.folder / "log/apps/shop/tasks").iterdir()) == ["0_0"]
    assert shop.rows(topology(True), "counts", "mores") == [{"a": 3}, {"m": 1}]


def test_state_of_an_earlier_version_opens_and_is_checked_as_far_as_it_goes(shop: Shop) -> None:
    shop.send("a", "b")
    shop.rows(counting())
    leave_as_an_earlier_version(shop, counting())
    assert 'Config(renamed={"counts": "sums"})' in shop.refused(counting("sums"))
    Admin(shop.broker).alter_topic("in", partitions=4)
    assert "it had 1 tasks and now has 4" in shop.refused(counting())


def test_state_of_an_earlier_version_goes_on(shop: Shop) -> None:
    shop.send("a", "b")
    shop.rows(counting())
    directory = shop.folder / "log/apps/shop"
    leave_as_an_earlier_version(shop, counting())
    shop.send("a")
    assert shop.rows(counting(), "counts") == [{"a": 2, "b": 1}]
    assert LogRecord(directory, "shop").load() is not None
    assert not (directory / "topology.txt").exists()


def test_state_without_its_record_is_refused_by_name(shop: Shop) -> None:
    shop.send("a")
    shop.rows(counting())
    record = shop.folder / "log/apps/shop/identity"
    data = record.read_bytes()
    record.unlink()
    said = shop.refused(counting())
    assert f"{record}, which says what it is the state of, is missing" in said
    record.write_bytes(data.replace(b"counts", b"count5"))
    assert f"{record} is damaged" in shop.refused(counting())
    with open_reset(counting(), Config("shop"), shop.broker) as reset:
        reset.run()
    assert shop.rows(counting(), "counts") == [{"a": 1}]
    with pytest.raises(StateError, match="is the record of the application 'shop', not of 'other'"):
        LogRecord(record.parent, "other").load()


class Remembering(Processor):
    """Remembers how many records it has seen."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = 0

    def process(self, record: Record) -> None:
        self.seen += 1


def test_attributes_of_a_processor_whose_name_has_shifted_are_told(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    def topology(filtered: bool) -> Topology:
        builder = StreamsBuilder(value=Str())
        stream = builder.stream("in")
        if filtered:
            stream = stream.filter(lambda key, value: True)
        stream.process(Remembering)
        return builder.build()

    shop.send("a")
    shop.rows(topology(False))
    with caplog.at_level("WARNING", logger="headwater"):
        shop.rows(topology(True))
    assert "the attributes of KSTREAM-PROCESSOR-0000000001 are not used" in caplog.text


def test_workers_that_start_at_once_for_the_first_time_do_not_disturb_each_other(shop: Shop) -> None:
    apps = [shop.app(counting()) for _ in range(6)]
    threads = [threading.Thread(target=app.start) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [app.state for app in apps] == ["running"] * 6
    assert [app.restarts for app in apps] == [0] * 6
    for app in apps:
        app.stop()


def regrouped() -> Topology:
    builder = StreamsBuilder(value=Str())
    builder.stream("in").group_by(lambda key, value: value, name="again").count(store="counts")
    return builder.build()


def test_a_reset_lets_an_application_start_whose_internal_topic_is_gone(shop: Shop) -> None:
    shop.send("a", "b")
    wanted = [{"a": 1, "b": 1}]
    assert shop.rows(regrouped(), "counts") == wanted
    shutil.rmtree(shop.folder / "log" / "topics" / "shop-again-repartition")
    with pytest.raises(StateError, match=r"let the application begin anew \(headwater reset\)"):
        shop.app(regrouped()).start()
    with open_reset(regrouped(), Config("shop"), shop.broker) as reset:
        reset.run()
    assert shop.rows(regrouped(), "counts") == wanted


def test_an_input_that_was_taken_out_before_a_reset_can_come_back_after_it(shop: Shop) -> None:
    def reading(*topics: str) -> Topology:
        builder = StreamsBuilder(value=Str())
        builder.stream(list(topics)).group_by_key().count(store="counts")
        return builder.build()

    Admin(shop.broker).create_topic("more")
    shop.send("a")
    with Producer(shop.broker) as producer:
        producer.send("more", key="b", value="b")
    wanted = [{"a": 1, "b": 1}]
    assert shop.rows(reading("in", "more"), "counts") == wanted
    with open_reset(reading("in"), Config("shop"), shop.broker) as reset:
        reset.run()
    assert shop.rows(reading("in"), "counts") == [{"a": 1}]
    assert shop.rows(reading("in", "more"), "counts") == wanted
