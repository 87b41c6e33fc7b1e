"""How results are packed into rows, whatever their size."""

import pytest

from headwater.streams.spark import shard
from headwater.streams.spark.rows import unpack
from headwater.streams.spark.shard import Routes, output_rows


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
