"""Applications over topics that were damaged and repaired: what was sound is processed, and they go on."""

from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Consumer, StateError, StreamsBuilder, Topology
from headwater.state.log import CorruptLog, Log
from tests.streams.apps import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts")
    builder.stream("in").to("out")
    return builder.build()


def process(place: Place) -> None:
    with place.app(copying()) as app:
        app.wait_idle()


def send(place: Place, *values: Any) -> None:
    for value in values:
        place.send("k", value=value)


def values(place: Place, topic: str = "out") -> list[int]:
    return [int(value) for _, value in place.out(topic) if value is not None]


def active(place: Place, topic: str) -> Path:
    return max((place.folder / "topics" / topic / "0").glob("*.log"))


def flip(file: Path, share: float) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * share)] ^= 1
    file.write_bytes(data)


def repair(place: Place, topic: str) -> int:
    with Log.open(place.folder) as log:
        return log.repair_topic(topic, execute=True).partitions[0].lost_offsets


def test_an_input_that_is_damaged_before_it_is_read_is_processed_up_to_there_and_behind_it_once_repaired(
    place: Place,
) -> None:
    send(place, *range(10))
    flip(active(place, "in"), 0.55)
    for _ in range(2):
        with pytest.raises(CorruptLog, match=r"in-0@5 is damaged: .* headwater log repair in shows what that is"):
            process(place)
    assert values(place) == [0, 1, 2, 3, 4]
    with Consumer(place.broker, "in") as consumer:
        assert len(consumer.poll(1_000)) == 5
    assert repair(place, "in") == 1
    process(place)
    send(place, 10)
    process(place)
    assert values(place) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert len(place.out("in")) == 10


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_an_input_that_is_damaged_after_it_was_read_does_not_stop_the_application_once_repaired(
    place: Place, share: float
) -> None:
    send(place, *range(10))
    process(place)
    flip(active(place, "in"), share)
    with pytest.raises(CorruptLog, match="headwater log repair in"):
        process(place)
    assert repair(place, "in") == 1
    process(place)
    send(place, 10, 11)
    process(place)
    assert values(place) == list(range(12))


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_an_output_that_is_damaged_goes_on_once_repaired_and_is_watched_then(place: Place, share: float) -> None:
    with place.app(copying()) as app:
        for number in range(10):
            send(place, number)
            app.wait_idle()
    flip(active(place, "out"), share)
    with pytest.raises(CorruptLog, match="headwater log repair out"):
        process(place)
    assert repair(place, "out") == 1
    for number in (10, 11):
        process(place)
        send(place, number)
        process(place)
    left = values(place)
    assert [number for number in range(12) if number not in left] == [int(10 * share)]
    file = active(place, "out")
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2])
    (place.folder / "topics" / "out" / "0" / "append.lock").write_bytes(bytes(8))
    with pytest.raises(StateError, match="out-0 has lost results of task 0_0"):
        process(place)
    file.write_bytes(good)
    process(place)


def test_reading_up_to_the_end_ends_where_a_repair_gave_up_the_last_records(place: Place) -> None:
    send(place, *range(10))
    process(place)
    file = active(place, "in")
    file.write_bytes(file.read_bytes()[:-10])
    assert repair(place, "in") == 1
    process(place)
    with Consumer(place.broker, "in", group="g") as consumer:
        assert len(consumer.poll(1_000)) == 9
        assert consumer.poll(1_000) == []
        assert consumer.position("in", 0) == Admin(place.broker).describe("in").partitions[0].end == 10
        assert consumer.lag() == {("in", 0): 0}
