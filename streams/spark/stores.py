"""What a query has committed to Spark's state, read from its checkpoint while it runs or after. It owns how a stage's
cells are found there and that they are only read; which rows they hold is state.py's, what they mean is the stores'."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.errors import StateError, StreamsError
from headwater.streams.spark.state import PagedBackend

__all__ = ["CommittedCells", "stage_backends", "stage_cells"]


class _Variable(msgspec.Struct, rename="camel"):
    state_name: str


class _Properties(msgspec.Struct, rename="camel"):
    """Of what Spark records about an operator, what is needed here."""

    state_variables: list[_Variable] = []


class CommittedCells:
    """Cells that can be read only."""

    def __init__(self, cells: Mapping[bytes, bytes]) -> None:
        self._cells = cells

    def get(self, key: bytes) -> bytes | None:
        return self._cells.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._cells.get(key) for key in keys]

    def put(self, key: bytes, data: bytes) -> None:
        self.write({key: data})

    def delete(self, key: bytes) -> None:
        self.write({key: None})

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        # A back end that makes room puts what has changed, here nothing.
        if changes:
            raise StreamsError("The state of a Spark query can be changed by its records alone, and not from outside.")


def stage_backends(
    spark: SparkSession, checkpoint: str, variable: str, stores: Iterable[str], batch_id: int | None = None
) -> dict[int, PagedBackend]:
    """The rows of a stage by the key its shards are grouped by, as of a batch or of the last one committed."""
    cells = stage_cells(spark, checkpoint, variable, batch_id)
    stores = list(stores)
    return {key: PagedBackend(CommittedCells(shard), stores) for key, shard in cells.items()}


def stage_cells(
    spark: SparkSession, checkpoint: str, variable: str, batch_id: int | None = None
) -> dict[int, dict[bytes, bytes]]:
    """The cells of a stage by the key its shards are grouped by, as of a batch or of the last one committed.

    A stage is known by the name of its state variable: Spark numbers operators from the sink, so that a number means
    another stage as soon as one is added. Before the first commit there are no cells.
    """
    # The first use of it starts what readers of state report to; without, they fail in a session that runs no query.
    assert spark.streams
    with _readable(checkpoint) as place:
        return _stage_cells(spark, checkpoint, place, variable, batch_id)


def _stage_cells(
    spark: SparkSession, checkpoint: str, place: str, variable: str, batch_id: int | None
) -> dict[int, dict[bytes, bytes]]:
    known: set[str] = set()
    for operator in spark.read.format("state-metadata").load(place).collect():
        if operator.maxBatchId < 0:
            return {}
        names = _variables(operator.operatorProperties)
        known |= names
        if variable in names:
            first, last = operator.minBatchId, operator.maxBatchId
            if batch_id is not None and not first <= batch_id <= last:
                raise StreamsError(
                    f"The checkpoint {checkpoint} has the batches {first} to {last}, but not {batch_id}."
                )
            return _read(spark, place, operator.operatorId, variable, last if batch_id is None else batch_id)
    if known:
        raise StateError(
            f"The checkpoint {checkpoint} has no state {variable!r}, only {', '.join(sorted(known))}: it is another "
            "topology's."
        )
    return {}


@contextmanager
def _readable(checkpoint: str) -> Iterator[str]:
    """A path to the checkpoint under which Spark finds its state: it escapes blanks and the like once too often."""
    path = Path(checkpoint).absolute()
    if "://" in checkpoint or checkpoint.startswith("file:") or path.as_uri() == f"file://{path}":
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        link = Path(folder) / "checkpoint"
        link.symlink_to(path)
        yield str(link)


def _variables(properties: str) -> set[str]:
    if not properties:
        return set()
    return {found.state_name for found in msgspec.json.decode(properties, type=_Properties).state_variables}


def _read(
    spark: SparkSession, checkpoint: str, operator: int, variable: str, batch_id: int
) -> dict[int, dict[bytes, bytes]]:
    state = (
        spark.read.format("statestore")
        .option("operatorId", operator)
        .option("stateVarName", variable)
        .option("batchId", batch_id)
        .load(checkpoint)
    )
    # What the columns are called is up to who made the variable and grouped the rows; there is one of each.
    table = state.select(F.col("key.*"), F.col("user_map_key.*"), F.col("user_map_value.*")).toArrow()
    cells: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
    for shard, key, data in zip(*(column.to_pylist() for column in table.columns), strict=True):
        cells[shard][key] = data
    return dict(cells)
