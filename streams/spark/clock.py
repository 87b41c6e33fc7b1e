"""The wall clock as a Spark data source, `headwater-clock`: for every stage and shard a row that says what time it is.
It owns when there is a tick and that a batch which is replayed has the time it had; what a stage does then is the
task's.

An offset is `{"now": 1700000000000, "drain": false, "tick": 12}`: the time, whether what is held back for other inputs
is to be processed, and how many ticks there were. A clock that is set back keeps the time it had.

| option | content |
|---|---|
| shards | a JSON object from the numbers of stages to how many shards each has |
| every_ms | there is a tick when the clock has passed another multiple of it; 1,000 unless given |
| clock | a function that gives epoch milliseconds, pickled by cloudpickle, in base64; the system's unless given |
| drain | `true`: the next tick, and only that, says drain |

Under available-now there is one tick, whatever the time. The function is called in a process of Spark's own on the
driver's machine.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import cloudpickle  # type: ignore[import-untyped]
import msgspec
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headwater.errors import StreamsError
from headwater.streams.clocks import system_clock
from headwater.streams.spark.rows import DRAIN, SCHEMA, SOURCE, Row

__all__ = ["Ticks", "tick_options"]

Clock: TypeAlias = Callable[[], int]
Offset: TypeAlias = dict[str, Any]


def tick_options(
    shards: Mapping[int, int], every_ms: int = 1_000, clock: Clock | None = None, *, drain: bool = False
) -> dict[str, str]:
    """Return the options of a `headwater-clock` source for stages with so many shards each.

    >>> from headwater.streams.spark.clock import tick_options
    >>> tick_options({0: 4, 2: 1}, drain=True)
    {'shards': '{"0": 4, "2": 1}', 'every_ms': '1000', 'drain': 'true'}
    """
    options = {"shards": json.dumps(dict(shards)), "every_ms": str(every_ms), "drain": str(drain).lower()}
    if clock is not None:
        options["clock"] = base64.b64encode(cloudpickle.dumps(clock)).decode()
    return options


class Ticks(DataSource):
    """A row for every shard of every stage whenever the clock has gone on."""

    @classmethod
    def name(cls) -> str:
        return "headwater-clock"

    def schema(self) -> str:
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        # Simple: its rows go from the driver to the executor without another Python process.
        return _Reader(self.options)


class _Reader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        try:
            self._shards = msgspec.json.decode(options.get("shards", ""), type=dict[int, int], strict=False)
            self._every = msgspec.convert(options.get("every_ms", "1000"), int, strict=False)
        except msgspec.MsgspecError as error:
            raise StreamsError(f"The source headwater-clock cannot be read with these options: {error}.") from error
        if not self._shards or self._every < 1:
            raise StreamsError(
                f"The source headwater-clock needs shards and has {self._shards}, and every_ms={self._every} must be 1 "
                "or more."
            )
        pickled = options.get("clock")
        self._clock: Clock = system_clock if pickled is None else cloudpickle.loads(base64.b64decode(pickled))
        self._drain = options.get("drain", "false") == "true"
        # Under available-now, whether the one tick is still to come.
        self._once: bool | None = None

    def initialOffset(self) -> Offset:
        return {"now": -1, "drain": False, "tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self._once = True

    def read(self, start: Offset) -> tuple[Iterator[tuple[Any, ...]], Offset]:
        reached = self._clock()
        now = max(reached - reached % self._every, start["now"])
        if self._once is None:
            due = self._drain or now > start["now"]
        else:
            due, self._once = self._once, False
        if not due:
            return iter(()), start
        end = {"now": now, "drain": self._drain, "tick": start["tick"] + 1}
        self._drain = False
        return iter(self._rows(end)), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows(end))

    def _rows(self, offset: Offset) -> list[Row]:
        data = DRAIN if offset["drain"] else None
        return [
            (stage, shard, None, SOURCE, shard, offset["now"], data)
            for stage, shards in self._shards.items()
            for shard in range(shards)
        ]
