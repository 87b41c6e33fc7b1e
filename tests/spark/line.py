"""The chain of a Spark query without Spark: the same intake, shards and routes, called one after the other over cells
in dictionaries, with everything pickled on its way. It says in milliseconds what a query says in seconds; that Spark
does the same is the business of the tests on Spark."""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from headwater import Config, Topology
from headwater.dsl.partitioner import partition_for
from headwater.dsl.topology import Source
from headwater.streams.queues import RawRecord
from headwater.streams.set_back import SetBack
from headwater.streams.spark.chain import intake_plan, routes_of, shard_plan
from headwater.streams.spark.intake import intake
from headwater.streams.spark.rows import DRAIN, OUTPUT, SOURCE, Row, arrow_schema, unpack
from headwater.streams.spark.shard import Report, run_shard
from headwater.streams.spark.stages import Stages, stages

SOURCE_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class DictCells(dict[bytes, bytes]):
    """Cells in memory."""

    def put(self, key: bytes, data: bytes) -> None:
        self[key] = data

    def delete(self, key: bytes) -> None:
        self.pop(key, None)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, data in changes.items():
            if data is None:
                self.delete(key)
            else:
                self.put(key, data)


class Line:
    """A topology's stages, one behind the other, with their state between batches."""

    def __init__(
        self, topology: Topology, config: Config, topics: Iterable[str], partitions: int = 1, at_once: int | None = None
    ) -> None:
        known = list(topics)

        def topics_of(source: Source) -> list[str]:
            if source.pattern is not None:
                return sorted(topic for topic in known if source.pattern.fullmatch(topic))
            internal = topology.internal_topics
            return [f"{config.app_id}-{topic}" if topic in internal else topic for topic in source.topics]

        self.stages: Stages = stages(topology, config, lambda topic: partitions, topics_of)
        self._at_once = at_once
        self._partitions = partitions
        self._cells: dict[tuple[int, int], DictCells] = defaultdict(DictCells)
        self._offsets: dict[tuple[str, int], int] = defaultdict(int)
        self._turns: dict[str, int] = defaultdict(int)
        self.reports: list[Report] = []
        # Stream time that is to be set back.
        self.set_back: SetBack | None = None
        # The start of the query.
        self.run: str | None = None

    def cells(self, stage: int, shard: int) -> DictCells:
        return self._cells[stage, shard]

    def send(self, topic: str, records: Sequence[RawRecord]) -> list[Any]:
        """Source batches for records of a topic, which get partitions and offsets."""
        parts: dict[int, list[RawRecord]] = defaultdict(list)
        for key, value, timestamp, headers, _ in records:
            if key is None:
                partition, self._turns[topic] = self._turns[topic] % self._partitions, self._turns[topic] + 1
            else:
                partition = partition_for(key, self._partitions)
            offset = self._offsets[topic, partition]
            self._offsets[topic, partition] += 1
            parts[partition].append((key, value, timestamp, headers, offset))
        return [_source_batch(topic, partition, part) for partition, part in parts.items()]

    def batch(self, sources: Iterable[Any], now: int | None = None, drain: bool = False) -> list[tuple[str, RawRecord]]:
        """Run one batch; return (topic, record) of what came out, the records of a shard in order."""
        run = pickle.loads(pickle.dumps(intake_plan(self.stages, routes_of(self.stages))))
        rows = [row for batch in sources for made in intake(run)([batch]) for row in _rows(made)]
        if now is not None:
            data = DRAIN if drain else None
            rows += [
                (stage.number, shard, None, SOURCE, shard, now, data)
                for stage in self.stages.chained
                for shard in range(stage.shards)
            ]
        for stage in self.stages.chained:
            planned = shard_plan(self.stages, stage, routes_of(self.stages), (), self._at_once)
            plan = pickle.loads(pickle.dumps(replace(planned, set_back=self.set_back, run=self.run)))
            others = [row for row in rows if row[0] != stage.number]
            for shard in range(stage.shards):
                own = [row for row in rows if row[0] == stage.number and row[1] == shard]
                if own:
                    others += run_shard(plan, shard, own, self._cells[stage.number, shard])
            rows = others
        self.reports += [
            msgspec.msgpack.decode(row[6], type=Report)
            for row in rows
            if row[0] not in (OUTPUT,) and row[6] is not None
        ]
        out = sorted((row for row in rows if row[0] == OUTPUT), key=lambda row: row[3:6])
        return [(row[2], record) for row in out for record in unpack(row[6])]


def _rows(batch: Any) -> Iterable[Row]:
    columns = [batch.column(name).to_pylist() for name in arrow_schema().names]
    return zip(*columns, strict=True)


def _source_batch(topic: str, partition: int, records: Sequence[RawRecord]) -> Any:
    keys, values, timestamps, headers, offsets = zip(*records, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic] * len(records), pa.string()),
            pa.array([partition] * len(records), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(timestamps, pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([[{"key": k, "value": v} for k, v in pairs] for pairs in headers], SOURCE_COLUMNS.field(6).type),
        ],
        schema=SOURCE_COLUMNS,
    )
