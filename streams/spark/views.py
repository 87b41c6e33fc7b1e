"""The stores of a query as its last batch left them: one by one, and for questions from outside, which expect a worker
with tasks. It owns which stage and shards keep a store; how cells are found in a checkpoint is stores.py's, and what is
asked is queries.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from headwater.dsl.topology import StoreSpec, Topology
from headwater.errors import StreamsError
from headwater.streams.changes import committed_store
from headwater.streams.spark.chain import variable
from headwater.streams.spark.rows import slots
from headwater.streams.spark.shard import of_globals, open_backend
from headwater.streams.spark.stages import Stage, Stages
from headwater.streams.spark.state import PagedBackend
from headwater.streams.spark.stores import CommittedCells, stage_cells
from headwater.streams.stores import public

__all__ = ["CommittedStores", "WorkerView"]


class CommittedStores:
    """Reads a query's stores from its checkpoint, whether it runs or not."""

    def __init__(
        self, spark: SparkSession, checkpoint: str, topology: Topology, stages: Stages, partitions: int
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.stages = stages
        self._partitions = partitions
        self.topology = topology
        self.specs: dict[str, StoreSpec] = {**topology.global_stores, **topology.stores}

    def store(self, name: str) -> Any:
        """A store, to read: all its shards together."""
        stage = self.keeper(name)
        is_global = name in self.topology.global_stores
        backends = self.backends(stage)[: 1 if is_global else None]
        parts = [committed_store(self.specs[name], of_globals(b) if is_global else b) for b in backends]
        return public(self.specs[name], parts, lambda: 0, False)

    def keeper(self, name: str) -> Stage:
        """The stage that keeps a store; the first of those that have copies of a global one."""
        for stage in self.stages.chained:
            if name in stage.stores() or (stage.global_task is not None and name in self.topology.global_stores):
                return stage
        if name in self.specs:
            raise StreamsError(
                f'the store {name!r} is kept by Spark itself, since its aggregate has emit="per-batch": leave that out '
                "to have a store that can be read"
            )
        known = ", ".join(sorted(self.specs)) or "none at all"
        raise StreamsError(f"no step of the query keeps a store {name!r}: its stores are {known}")

    def kept_by_spark(self) -> list[str]:
        """The stores that have no rows of ours, since an aggregate of Spark's own is in their place."""
        ours = {name for stage in self.stages.chained for name in stage.stores()}
        return [name for name in self.topology.stores if name not in ours]

    def backends(self, stage: Stage) -> list[PagedBackend]:
        """The rows of each shard of a stage."""
        cells = stage_cells(self._spark, self._checkpoint, variable(stage))
        keys = slots(stage.shards, self._partitions)
        return [open_backend(stage.spec, stage.global_task, CommittedCells(cells.get(key, {}))) for key in keys]


# ---- as a worker ---------------------------------------------------------------------------------------------------


class WorkerView:
    """What queries.py looks at in a worker, over a query's shards; a stage's rows are read when one is asked for."""

    def __init__(self, stores: CommittedStores) -> None:
        self._stores = stores
        self._backends: dict[int, list[PagedBackend]] = {}
        self.topology = stores.topology
        self.clock = _Clock()
        self.global_task = _Holding(_Globals(self))
        self.tasks: dict[str, _Shard] = {}
        for stage in stores.stages.chained:
            kept = {name: stores.specs[name] for name in stage.stores()}
            for shard in range(stage.shards):
                self._add(f"{stage.name}_{shard}", kept, partial(self.backend, stage, shard))
        for name in stores.kept_by_spark():
            # Which says that it cannot be read, and why.
            self._add(name, {name: stores.specs[name]}, partial(stores.keeper, name))
        self.plan = _Plan(list(self.tasks.values()))

    def _add(self, task_id: str, kept: Mapping[str, StoreSpec], open_: Callable[[], Any]) -> None:
        self.tasks[task_id] = _Shard(task_id, _Holding(kept), open_)

    def backend(self, stage: Stage, shard: int) -> PagedBackend:
        """The rows of a shard; those of its whole stage are read with them."""
        if stage.number not in self._backends:
            self._backends[stage.number] = self._stores.backends(stage)
        return self._backends[stage.number][shard]

    def global_store(self, name: str) -> Any:
        """A global store, as the first shard has it."""
        return committed_store(self._stores.specs[name], of_globals(self.backend(self._stores.keeper(name), 0)))


class _Globals(dict[str, Any]):
    def __init__(self, view: WorkerView) -> None:
        self._view = view

    def __missing__(self, name: str) -> Any:
        return self._view.global_store(name)


@dataclass(frozen=True)
class _Holding:
    stores: Mapping[str, Any]


@dataclass(frozen=True)
class _Shard:
    """A task, as the plan has it and as it runs."""

    task_id: str
    task: _Holding
    open: Callable[[], PagedBackend]

    def stores(self) -> list[StoreSpec]:
        return list(self.task.stores.values())

    @property
    def backend(self) -> PagedBackend:
        return self.open()


@dataclass(frozen=True)
class _Plan:
    tasks: list[_Shard]


class _Clock:
    def now(self) -> int:
        return 0
