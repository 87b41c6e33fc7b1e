"""A task's rows in Spark's state: over several batches, over a restart, and read from outside."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.dsl.serde import Bytes, Str
from headwater.dsl.topology import StoreSpec
from headwater.errors import StateError, StreamsError
from headwater.state.backend import Backend
from headwater.state.memory import MemoryBackend
from headwater.streams.changes import TASK, committed_store
from headwater.streams.spark.state import PagedBackend, SparkCells
from headwater.streams.spark.stores import stage_backends, stage_cells

STORES = ["counts", "dates", TASK]
SHARDS = 3


def apply(backend: Backend, seed: int, shard: int) -> list[str]:
    """Change a shard's rows in ways that the seed decides; return what was read on the way."""
    random = Random(f"{seed} {shard}")
    seen: list[str] = []
    for turn in range(3):
        keys = [b"%05d" % random.randrange(5_000) for _ in range(600)]
        seen.append(str(backend.get_many("counts", keys)))
        backend.write(
            {
                "counts": {key: random.choice([None, b"%d" % seed, key * 20]) for key in keys},
                "dates": {b"%03d-%d-%d" % (seed, turn, number): b"" for number in range(500)},
                TASK: {b"last": b"%d" % seed},
            }
        )
        seen.append(str(list(backend.scan("counts", keys[0], None, reverse=seed % 2 == 0))[:50]))
        old = [key for key, _ in backend.scan("dates", b"", b"%03d" % (seed - 1))]
        backend.write({"dates": dict.fromkeys(old)})
    return seen


class Changing(StatefulProcessor):
    """Applies each seed it is sent, and sends on what it saw."""

    def __init__(self, variable: str) -> None:
        self._variable = variable

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._cells = SparkCells(handle.getMapState(self._variable, "key binary", "value binary"))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        backend = PagedBackend(self._cells, STORES)
        for frame in rows:
            for seed in frame["seed"]:
                seen = apply(backend, int(seed), key[0])
                yield pd.DataFrame({"shard": [key[0]], "seed": [seed], "seen": ["\n".join(seen)]})
        backend.flush()

    def close(self) -> None:
        pass


class Erring(StatefulProcessor):
    """Asks for what Spark refuses, between two things that it does not refuse."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._cells = SparkCells(handle.getMapState("erring", "key binary", "value binary"))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        cells = self._cells
        cells.write({b"%d" % number: b"x" * 10_000 for number in range(200)})
        said = ""
        try:
            name, cells._name = cells._name, "no such state"
            cells.get_many([b"1"] * 100)
        except StreamsError as error:
            said = str(error)
        cells._name = name
        cells.delete(b"7")
        cells.delete(b"never there")
        cells.put(b"empty", b"")
        found = cells.get_many([*(b"%d" % number for number in range(200)), b"empty", b"none"])
        sizes = [None if data is None else len(data) for data in found]
        yield pd.DataFrame({"shard": [key[0]], "seed": ["0"], "seen": [f"{said}\n{sizes}"]})

    def close(self) -> None:
        pass


SENT = "shard int, seed string, seen string"


def feed(folder: Path, seeds: range) -> None:
    for seed in seeds:
        # In place at once, and in the order of their times, which is the order they are read in.
        (folder / f".{seed}").write_text(f"{seed}\n")
        os.utime(folder / f".{seed}", (seed, seed))
        (folder / f".{seed}").rename(folder / f"{seed}.txt")


def run(spark: SparkSession, folder: Path, *processors: StatefulProcessor) -> list[tuple[int, int, str]]:
    """Read what is new, a file per batch, through the processors one behind the other; return what came out."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    rows = rows.selectExpr("value as seed", f"explode(sequence(0, {SHARDS - 1})) as shard", "'' as seen")
    for processor in processors:
        rows = rows.groupBy("shard").transformWithStateInPandas(processor, SENT, "update", "none")
    found: list[tuple[int, int, str]] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend((row.shard, int(row.seed), row.seen) for row in batch.collect())

    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.outputMode("update").trigger(availableNow=True).start()
    query.awaitTermination()
    return found


def assert_same(backends: dict[int, PagedBackend], models: list[MemoryBackend]) -> None:
    assert sorted(backends) == list(range(SHARDS))
    for shard, model in enumerate(models):
        for store in STORES:
            assert list(backends[shard].scan(store, b"", None)) == list(model.scan(store, b"", None))


def test_rows_over_batches_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    checkpoint = str(tmp_path / "checkpoint")
    models = [MemoryBackend(STORES) for _ in range(SHARDS)]
    assert stage_cells(spark, checkpoint, "cells_one") == {}
    for begin in (0, 3):
        feed(tmp_path / "in", range(begin, begin + 3))
        found = run(spark, tmp_path, Changing("cells_one"), Changing("cells_two"))
        wanted = [
            (shard, seed, "\n".join(apply(model, seed, shard)))
            for seed in range(begin, begin + 3)
            for shard, model in enumerate(models)
        ]
        assert sorted(found) == sorted(wanted)
        # Both stages saw the same, but the one that Spark numbers 0 is the last.
        for variable in ("cells_one", "cells_two"):
            assert_same(stage_backends(spark, checkpoint, variable, STORES), models)

    cells = stage_cells(spark, checkpoint, "cells_one")
    assert all(sum(key.startswith(b"p") for key in shard) > 3 for shard in cells.values())

    before = [MemoryBackend(STORES) for _ in range(SHARDS)]
    for seed in range(5):
        for shard, model in enumerate(before):
            apply(model, seed, shard)
    assert_same(stage_backends(spark, checkpoint, "cells_two", STORES, batch_id=4), before)

    with pytest.raises(StreamsError, match="batches 0 to 5, but not 6"):
        stage_cells(spark, checkpoint, "cells_one", batch_id=6)
    with pytest.raises(StateError, match="no state 'cells_three', only cells_one, cells_two"):
        stage_cells(spark, checkpoint, "cells_three")


def test_what_was_committed_can_only_be_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    feed(tmp_path / "in", range(1))
    run(spark, tmp_path, Changing("cells"))
    backend = stage_backends(spark, str(tmp_path / "checkpoint"), "cells", STORES)[1]
    model = MemoryBackend(STORES)
    apply(model, 0, 1)
    wanted = {key.decode(): row for key, row in model.scan("counts", b"", None)}
    store = committed_store(StoreSpec("key-value", "counts", Str(), Bytes()), backend)
    assert {key: store.get(key) for key in wanted} == wanted
    backend.write({"counts": {b"k": b"row"}})
    with pytest.raises(StreamsError, match="by its records alone"):
        backend.flush()


def test_an_answer_that_is_a_refusal(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    feed(tmp_path / "in", range(1))
    found = run(spark, tmp_path, Erring())
    wanted = [10_000] * 200 + [0, None]
    wanted[7] = None
    assert len(found) == SHARDS
    for _, _, seen in found:
        said, sizes = seen.split("\n")
        assert said.startswith("Spark's state 'no such state' cannot be read or written: ")
        assert sizes == str(wanted)
