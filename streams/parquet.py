"""Records in Parquet files. It owns the columns, and that pyarrow is needed for them alone; which records are written,
and where those that are read go, is others'.

| column | type | when read and left out |
|---|---|---|
| `topic` | string | the topic that is named |
| `partition` | int32 | chosen by key |
| `offset` | int64 | none |
| `timestamp` | timestamp in milliseconds, UTC | now |
| `key`, `value` | binary; text when read, too | a key: none; a value there must be |
| `headers` | list of (`name` string, `value` binary) | none |
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.errors import StreamsError
from headwater.streams.consumer import ConsumerRecord

__all__ = ["ParquetReader", "ParquetWriter"]

_ROWS = 10_000


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # type: ignore[import-untyped]  # it comes without types
        import pyarrow.parquet  # type: ignore[import-untyped]  # it comes without types
    except ModuleNotFoundError as error:
        raise StreamsError(
            f"Parquet needs pyarrow ({error.name} is missing): run pip install 'headwater[parquet]'."
        ) from error
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> Any:
    header = arrow.struct([arrow.field("name", arrow.string(), False), arrow.field("value", arrow.binary())])
    return arrow.schema(
        [
            arrow.field("topic", arrow.string(), False),
            arrow.field("partition", arrow.int32(), False),
            arrow.field("offset", arrow.int64(), False),
            arrow.field("timestamp", arrow.timestamp("ms", "UTC"), False),
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary()),
            arrow.field("headers", arrow.list_(arrow.field("element", header, False)), False),
        ]
    )


class ParquetWriter:
    """Write records to a file, a row group for every ten thousand or so."""

    def __init__(self, path: Path) -> None:
        self._arrow, parquet = _arrow()
        self._schema = _schema(self._arrow)
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._waiting: list[ConsumerRecord] = []

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None and self._waiting:
                self._write()
        finally:
            self._writer.close()

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Append records."""
        self._waiting += records
        if len(self._waiting) >= _ROWS:
            self._write()

    def _write(self) -> None:
        rows, self._waiting = self._waiting, []
        columns: dict[str, list[Any]] = {
            name: [getattr(row, name) for row in rows] for name in ConsumerRecord.__struct_fields__
        }
        columns["headers"] = [[{"name": name, "value": value} for name, value in row.headers] for row in rows]
        arrays = [self._arrow.array(columns[field.name], field.type) for field in self._schema]
        self._writer.write_batch(self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema))


class ParquetReader:
    """Read the records of a file; `total` is how many there are and `partitions` how many they were in, if it says."""

    def __init__(self, path: Path, topic: str | None) -> None:
        self._arrow, parquet = _arrow()
        self._path, self._topic = path, topic
        try:
            self._file = parquet.ParquetFile(path)
        except (OSError, self._arrow.ArrowException) as error:
            raise StreamsError(f"{path} cannot be read as Parquet: {error}.") from error
        self.total: int = self._file.metadata.num_rows
        self._columns = self._checked()
        self.partitions = self._count_partitions()

    def _checked(self) -> list[str]:
        there, ours = self._file.schema_arrow, _schema(self._arrow)
        if "value" not in there.names:
            raise StreamsError(f"{self._path} has no column value, only {', '.join(there.names)}: records need one.")
        if "topic" not in there.names and self._topic is None:
            raise StreamsError(f"{self._path} has no column topic: name the topic (--topic NAME).")
        columns = [field.name for field in ours if field.name in there.names]
        for name in columns:
            if not self._fits(name, there.field(name).type, ours.field(name).type):
                raise StreamsError(
                    f"{self._path}: the column {name} is {there.field(name).type}, and must be {ours.field(name).type}."
                )
        return columns

    def _fits(self, name: str, there: Any, ours: Any) -> bool:
        types = self._arrow.types
        if name in ("key", "value"):
            return bool(
                types.is_binary(there) or types.is_large_binary(there) or types.is_string(there) or types.is_null(there)
            )
        if name in ("partition", "offset"):
            return bool(types.is_integer(there))
        if name == "timestamp":
            return bool(types.is_timestamp(there) or types.is_integer(there))
        return bool(there.equals(ours)) or (name == "headers" and bool(types.is_list(there)))

    def _count_partitions(self) -> int | None:
        if "partition" not in self._columns:
            return None
        highest = -1
        for batch in self._file.iter_batches(columns=["partition"]):
            highest = max([highest, *(n for n in batch.column(0).to_pylist() if n is not None)])
        return highest + 1 or None

    def __iter__(self) -> Iterator[list[ConsumerRecord]]:
        now = time.time_ns() // 1_000_000
        for batch in self._file.iter_batches(_ROWS, columns=self._columns):
            table = {name: self._values(name, batch.column(at)) for at, name in enumerate(batch.schema.names)}
            yield [self._record({name: table[name][row] for name in table}, now) for row in range(batch.num_rows)]

    def _values(self, name: str, column: Any) -> list[Any]:
        if name == "timestamp":
            # As numbers: there are more milliseconds than Python has dates for.
            milliseconds = column.type if self._arrow.types.is_integer(column.type) else self._arrow.timestamp("ms")
            column = column.cast(milliseconds, safe=False).cast(self._arrow.int64())
        elif name in ("key", "value"):
            column = column.cast(self._arrow.binary())
        values: list[Any] = column.to_pylist()
        return values

    def _record(self, row: dict[str, Any], now: int) -> ConsumerRecord:
        headers = tuple((one["name"], one["value"]) for one in row.get("headers") or ())
        return ConsumerRecord(
            self._topic or row["topic"],
            _or(row.get("partition"), -1),
            _or(row.get("offset"), -1),
            row.get("key"),
            row["value"],
            _or(row.get("timestamp"), now),
            headers,
        )


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
