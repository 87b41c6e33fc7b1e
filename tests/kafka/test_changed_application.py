"""A changed application on Kafka: what is said, and that nothing is lost, doubled or overwritten."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import StreamsBuilder, TimeWindows, Topology, TopologyError
from headwater.streams.changes import memory_key
from headwater.streams.kafka.reset import planned_reset_of_unused
from headwater.streams.reset import open_reset
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.place import Place
from tests.kafka.reading import records


@pytest.fixture
def place(broker: Broker, tmp_path: Path) -> Place:
    return Place(broker, tmp_path)


def topology(
    place: Place, store: str = "counts", *, seconds: int = 10, latest: bool = False, first: bool = False
) -> Topology:
    builder = StreamsBuilder()
    if first:
        builder.stream(place.sink).group_by_key().count(store="firsts")
    stream = builder.stream(place.source)
    stream.group_by_key().count(store=store)
    windows = TimeWindows.of(timedelta(seconds=seconds))
    stream.group_by_key().windowed_by(windows).count(store="windows")
    if latest:
        stream.group_by_key().reduce(lambda old, new: new, store="latest")
    return builder.build()


def rows(place: Place, built: Topology, *stores: str, **settings: Any) -> list[dict[Any, Any]]:
    with place.app(built, **settings) as app:
        app.wait_idle(PATIENCE)
        return [dict(app.store(store).all()) for store in stores]


def refused(place: Place, built: Topology, **settings: Any) -> str:
    """Start, be refused, and leave all topics and offsets as they were."""
    before = contents(place)
    with pytest.raises(TopologyError) as caught:
        place.app(built, **settings).start()
    assert contents(place) == before
    return str(caught.value)


def contents(place: Place) -> dict[str, tuple[int, dict[str, str]]]:
    """The application's topics, their partitions and their settings."""
    there = place.broker.admin().list_topics(timeout=PATIENCE).topics
    return {topic: (len(there[topic].partitions), place._settings(topic)) for topic in sorted(place.topics())}


def test_an_application_that_changes_keeps_its_state_or_is_refused_by_name(place: Place) -> None:
    place.send(["ann", "bob"])
    assert rows(place, topology(place), "counts") == [{"ann": 1, "bob": 1}]
    # Another window size, and another name that may be the same store.
    assert "store 'windows': its windows were 10000 ms and are 60000 ms" in refused(place, topology(place, seconds=60))
    assert 'Config(renamed={"counts": "sums"})' in refused(place, topology(place, "sums"))
    # A store more; then it is taken out, and cannot come back with old rows.
    place.send(["ann"])
    assert rows(place, topology(place, latest=True), "counts", "latest") == [{"ann": 2, "bob": 1}, {"ann": "x"}]
    place.send(["ann"])
    assert rows(place, topology(place), "counts") == [{"ann": 3, "bob": 1}]
    assert "store 'latest' was taken out of the application" in refused(place, topology(place, latest=True))
    unused = planned_reset_of_unused(place.config(), place.address)
    assert (unused.stores, unused.topics) == (("latest",), [place.own("latest-changelog")])
    unused.run()
    assert place.own("latest-changelog") not in place.topics()
    assert rows(place, topology(place, latest=True), "counts", "latest") == [{"ann": 3, "bob": 1}, {}]
    # A new name, and a sub-topology before the others; and all of it on a machine that has no state.
    place.send(["ann"])
    changed = topology(place, "sums", latest=True, first=True)
    wanted = {"ann": 4, "bob": 1}
    assert rows(place, changed, "sums", "firsts", renamed={"counts": "sums"}) == [wanted, {}]
    assert place.own("sums-changelog") not in place.topics()
    assert rows(place, changed, "sums", state_dir=place.folder / "elsewhere") == [wanted]
    # More partitions under its state.
    place.widen(place.source, 4)
    said = refused(place, changed)
    assert f"topic '{place.source}' had 1 partitions and has 4" in said
    with open_reset(changed, place.config(), place.address) as reset:
        reset.run()
    assert sorted(place.topics()) == [place.source, place.sink]
    assert rows(place, changed, "sums") == [wanted]


def test_state_of_an_earlier_version_goes_on_and_is_checked_as_far_as_it_goes(place: Place) -> None:
    place.send(["ann"])
    assert rows(place, topology(place), "counts") == [{"ann": 1}]
    place.delete(place.own("identity"))
    place.send(["ann"])
    assert rows(place, topology(place, "sums"), "sums", renamed={"counts": "sums"}) == [{"ann": 2}]
    assert place.own("identity") in place.topics()
    place.delete(place.own("identity"))
    place.widen(place.source, 4)
    assert "it had 1 tasks and now has 4" in refused(place, topology(place))


def test_what_a_store_remembered_goes_with_it_when_it_is_deleted_as_unused(place: Place) -> None:
    """A store that comes back under its name after that is a new one: it has no time that records could be late for."""

    def counting(windowed: bool) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(place.source)
        stream.group_by_key().count(store="counts")
        if windowed:
            windows = TimeWindows.of(timedelta(seconds=10))
            stream.group_by_key().windowed_by(windows).count(store="windows")
        return builder.build()

    def remembered() -> set[bytes]:
        found = {record.key(): record.value() for record in records(place.broker, place.own("operators-0-changelog"))}
        return {key for key, value in found.items() if value is not None and key.endswith(b" windows")}

    place.send(["ann"])
    rows(place, counting(True), "windows")
    assert remembered() == {memory_key("store windows"), memory_key("step of windows")}
    rows(place, counting(False), "counts")
    planned_reset_of_unused(place.config(), place.address).run()
    assert remembered() == set()
    place.send(["ann"])
    counts, windows = rows(place, counting(True), "counts", "windows")
    assert (counts, list(windows.values())) == ({"ann": 2}, [1])
