"""How results are packed into rows, whatever their size, in which order a shard takes those of several senders, and
what is counted."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Config, StreamsBuilder
from headwater.streams.spark import shard
from headwater.streams.spark.rows import Row, pack, unpack
from headwater.streams.spark.shard import Routes, _merged, output_rows
from tests.spark.line import Line


def test_a_row_has_neither_too_many_records_nor_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "AT_ONCE", 4)
    monkeypatch.setattr(shard, "BYTES_AT_ONCE", 100)
    sizes = [1, 2, 3, 4, 5, 99, 0, 1, 300, 1, None, 98]
    values = [None if size is None else b"x" * size for size in sizes]
    sent = [("out", None, b"k", value, at, ()) for at, value in enumerate(values)]
    rows = list(output_rows(Routes({}, {}), 3, 0, 5, sent))
    packed = [unpack(row[6] or b"") for row in rows]
    assert [[record[2] for record in records] for records in packed] == [
        [0, 1, 2, 3], [4], [5], [6, 7], [8], [9, 10], [11],
    ]  # fmt: skip
    assert [record[1] for records in packed for record in records] == values
    assert [row[5] for row in rows] == [(5 << 20) + at for at in range(7)]


def by_lowest_head(senders: list[list[int]]) -> list[tuple[int, int]]:
    """The (sender, place) of each record, one after the other."""
    places, order = [0] * len(senders), []
    while heads := [(sent[at], n) for n, (sent, at) in enumerate(zip(senders, places, strict=True)) if at < len(sent)]:
        _, sender = min(heads)
        order.append((sender, places[sender]))
        places[sender] += 1
    return order


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=2, max_size=4),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_of_several_senders_the_lowest_timestamp_goes_first(
    senders: list[list[int]], packed: int, at_once: int
) -> None:
    rows: list[Row] = []
    for sender, times in enumerate(senders):
        records = [(b"%d" % sender, b"%d" % at, time, (), 0) for at, time in enumerate(times)]
        rows += [(1, 0, "t", 0, sender, at, pack(records[at : at + packed])) for at in range(0, len(times), packed)]
    with mock.patch.object(shard, "AT_ONCE", at_once):
        chunks = list(_merged(rows, 100))
    records = [record for chunk in chunks for record in chunk.load()]
    assert [(int(record[0] or b""), int(record[1] or b"")) for record in records] == by_lowest_head(senders)
    assert [record[4] for record in records] == [*range(100, 100 + len(records))]
    assert [chunk.last for chunk in chunks] == [chunk.load()[-1][4] for chunk in chunks]
    assert all(chunk.count == len(chunk.load()) <= at_once for chunk in chunks)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("values", [[b"{bad", b"1"], [b"1", b"{bad"], [b"1", b"{bad", b"2", b"{bad", b"{bad"]])
def test_bad_records_beside_good_ones_are_counted_alike_in_any_order(values: list[bytes], stateful: bool) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    (stream.group_by_key().count().to_stream() if stateful else stream.map_values(lambda value: value)).to("out")
    line = Line(builder.build(), Config(on_deserialization_error="skip"), ["in", "out"])
    results = line.batch(line.send("in", [(b"k", value, 5, (), 0) for value in values]))
    bad = values.count(b"{bad")
    assert len(results) == len(values) - bad
    assert sum(report.processed for report in line.reports) == len(values) - bad
    assert sum(sum(report.dropped.values()) for report in line.reports) == bad
