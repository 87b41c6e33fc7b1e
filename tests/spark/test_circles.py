"""Sub-topologies that feed each other in a circle, in batches of any size: the tables they end with are those of the
test driver that is given one record after the other."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Config, Json, Processor, Record, Str, StreamsBuilder, Topology, TopologyTestDriver
from tests.spark.line import Line

KEYS = ["a", "b", "c"]
Update = tuple[str, str, Any]


def pair(one: Any, other: Any) -> list[Any]:
    return [one, other]


def plain() -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.table(name, value=Json()) for name in ("left", "right"))
    left.join(right, pair, foreign_key=lambda v: v["of"], name="fk").to_stream().to("out")
    return builder.build()


def of_itself() -> Topology:
    builder = StreamsBuilder()
    left = builder.table("left", value=Json())
    left.left_join(left, pair, foreign_key=lambda v: v["of"], name="fk").to_stream().to("out")
    return builder.build()


def of_another_join() -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.table(name, value=Json()) for name in ("left", "right"))
    once = left.left_join(right, pair, foreign_key=lambda v: v["of"], name="one", store="once")
    once.left_join(right, pair, foreign_key=lambda v: v[0]["of"], name="two").to_stream().to("out")
    return builder.build()


def with_unreadable_records() -> Topology:
    return plain()


TOPOLOGIES: list[Callable[[], Topology]] = [plain, of_itself, of_another_join, with_unreadable_records]


def updates(topics: list[str], unreadable: bool) -> st.SearchStrategy[list[Update]]:
    value = st.one_of(st.none(), st.fixed_dictionaries({"of": st.sampled_from([*KEYS, None]), "n": st.integers(0, 2)}))
    if unreadable:
        value = st.one_of(value, st.just("unreadable"))
    return st.lists(st.tuples(st.sampled_from(topics), st.sampled_from(KEYS), value), min_size=1, max_size=14)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("make", TOPOLOGIES, ids=lambda make: make.__name__)
@settings(max_examples=50)
@given(data=st.data())
def test_tables_end_the_same(make: Callable[[], Topology], partitions: int, data: st.DataObject) -> None:
    topology = make()
    topics = [topic for source in topology.sources() for topic in source.topics if topic in ("left", "right")]
    steps = data.draw(updates(topics, make is with_unreadable_records))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1))
    check(topology, steps, sizes, partitions)


def test_an_answer_from_before_the_first_question_of_a_batch_comes_first() -> None:
    asks, other = {"of": "c", "n": 0}, {"of": "a", "n": 0}
    steps: list[Update] = [("left", "a", asks), ("left", "b", None), ("left", "c", other), ("left", "c", None)]
    check(of_itself(), steps, [2], 1)


def followed_by_another_repartition() -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.table(name, value=Json()) for name in ("left", "right"))
    joined = left.join(right, pair, foreign_key=lambda v: v["of"], name="fk").to_stream(name="changes")
    joined.select_key(lambda key, both: both[0]["of"]).repartition(name="again").to("out")
    return builder.build()


def test_what_follows_a_foreign_key_join_carries_the_headers_of_its_record_alone() -> None:
    line = Line(followed_by_another_repartition(), Config(), ["left", "right", "out"], 3)
    given = (("trace", b"7"), ("headwater-own", b"8"))
    sources = line.send("right", [(key.encode(), b"{}", 0, (), 0) for key in KEYS])
    sources += line.send("left", [(b"%d" % n, b'{"of":"%s"}' % KEYS[n % 3].encode(), n, given, 0) for n in range(9)])
    assert [headers for _, (_, _, _, headers, _) in line.batch(sources)] == [given] * 9


class ShowsHeaders(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.replace(value=[record.value["n"], *(name for name, _ in record.headers)]))


def merged_with_its_own_copy(*, with_state: bool) -> Topology:
    """Each record, and a copy of it under the key it names."""
    builder = StreamsBuilder()
    read = builder.stream("left", value=Json())
    if with_state:
        read = read.left_join(builder.table("right", value=Json()), lambda value, user: value)
    copies = read.select_key(lambda key, value: value["to"]).repartition(name="copies")
    both = read.merge(copies.map_values(lambda value: value | {"n": "copy"})).process_values(ShowsHeaders)
    both.group_by_key().aggregate(list, lambda key, shown, seen: [*seen, shown]).to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize("with_state", [False, True])
def test_at_equal_times_what_was_read_comes_before_what_was_repartitioned(with_state: bool) -> None:
    topology = merged_with_its_own_copy(with_state=with_state)
    names = [chr(ord("a") + n) for n in range(12)]
    sent = [
        (key.encode(), Json().encode({"n": f"{key}{at}", "to": names[(n + shift) % 12]}), at, (("mine", b""),), 0)
        for at, shift in ((5, 1), (5, 5), (7, 3))
        for n, key in enumerate(names)
    ]
    line = Line(topology, Config(), ["left", "right", "out"], 4)
    written = line.batch(line.send("left", sent))
    got = {key.decode(): Json().decode(value) for _, (key, value, _, _, _) in written}
    assert got == {
        key: [[shown, "mine"] for shown in (f"{key}5", f"{key}5", "copy", "copy", f"{key}7", "copy")] for key in names
    }


def check(topology: Topology, steps: list[Update], sizes: list[int], partitions: int) -> None:
    """Compare the tables after batches of these sizes with the driver's."""
    config = Config(on_deserialization_error="skip")
    encoded = [
        (topic, (key.encode(), b"{" if value == "unreadable" else None if value is None else Json().encode(value), at))
        for at, (topic, key, value) in enumerate(steps)
    ]
    with TopologyTestDriver(topology, config) as driver:
        for topic, (key, value, at) in encoded:
            driver.input(topic).send_bytes(key, value, at=at)
        expected = {r.key: r.value for r in driver.output("out", Str(), Json()).read_all()}
    line = Line(topology, config, ["left", "right", "out"], partitions)
    got: dict[str, Any] = {}
    at = 0
    while at < len(encoded):
        size = sizes[at % len(sizes)]
        batch = encoded[at : at + size]
        at += size
        sources = [made for topic, (key, value, t) in batch for made in line.send(topic, [(key, value, t, (), 0)])]
        for _, (key, value, _, headers, _) in line.batch(sources):
            assert headers == ()
            got[key.decode()] = None if value is None else Json().decode(value)
    present = {key: value for key, value in expected.items() if value is not None}
    assert {key: value for key, value in got.items() if value is not None} == present
