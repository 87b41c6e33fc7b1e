"""How results are packed into rows, whatever their size, and what is counted."""

import pytest

from headwater import Config, StreamsBuilder
from headwater.streams.spark import shard
from headwater.streams.spark.rows import unpack
from headwater.streams.spark.shard import Routes, output_rows
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
