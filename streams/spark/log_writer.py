"""What a query writes to an embedded log: the records that one shard of one stage has sent to topics in one batch. It
owns the choice of the partition and that writing a batch again adds nothing; in which order the records come, and when
a batch is written again, is the query's.

A partition takes a shard's records of a batch in chunks, under the producer `application/query/stage-shard` and a
sequence number that has the batch's in its upper and the chunk's in its lower bits. The log drops a sequence number
that it has passed, so a batch that was written in part is completed by writing all of it again. For that the same
records must come in the same order, and the topics must have as many partitions as before; how the records are spread
over the outputs' sequences does not matter.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from headwater.dsl.partitioner import partition_for
from headwater.dsl.records import Headers
from headwater.state.log import NewRecord, UnknownTopic
from headwater.streams.spark.log_handles import log_handles

__all__ = ["LogWriter"]

# Key, value, timestamp, headers, and the partition that was chosen for it.
Output: TypeAlias = tuple[bytes | None, bytes | None, int, Headers, int | None]

# Whatever changes these changes which records are in a chunk: a batch that was written in part must be completed by the
# version that began it.
_CHUNK_RECORDS = 50_000
_CHUNK_BYTES = 16 << 20
_CHUNK_BITS = 20


class LogWriter:
    """Write the outputs of a query's shards, each batch once, wherever it is killed.

    `query` is the id that the query's checkpoint gives it: with another checkpoint its batches are others. A topic that
    is not there is made, with `widest` partitions, as a local worker makes it.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater import Consumer
    >>> from headwater.streams.spark.log_writer import LogWriter
    >>> folder = TemporaryDirectory()
    >>> writer = LogWriter(folder.name, "shop", "5f0c")
    >>> for _ in range(2):
    ...     writer.write(0, 0, 17, [("revenue", [(b"dk", b"12", 1000, (), None)])])
    >>> writer.close()
    >>> with Consumer(f"log://{folder.name}", "revenue") as consumer:
    ...     [(record.key, record.value) for record in consumer.poll()]
    [(b'dk', b'12')]
    >>> folder.cleanup()
    """

    def __init__(self, directory: str | Path, app_id: str, query: str, *, widest: int = 1) -> None:
        self._directory = str(Path(directory).absolute())
        self._name = f"{app_id}/{query}"
        self._widest = widest

    def write(self, stage: int, shard: int, batch_id: int, outputs: Iterable[tuple[str, Sequence[Output]]]) -> None:
        """Append what a shard has sent to each topic in this batch, in this order; it is on the disk on return."""
        _Batch(self._directory, f"{self._name}/{stage}-{shard}", batch_id, shard, self._widest).write(outputs)

    def close(self) -> None:
        """Let go of the log's files; writing again opens them again."""
        log_handles(self._directory).close()


class _Batch:
    """One batch of one shard on its way to the log."""

    def __init__(self, directory: str, producer: str, batch_id: int, shard: int, widest: int) -> None:
        self._handles = log_handles(directory)
        self._producer = producer
        self._sequence = batch_id << _CHUNK_BITS
        # Records without a key go to the partitions in turn, but not from a memory that a replay would not have.
        self._turn = batch_id + shard
        self._widest = widest
        self._counts: dict[str, int] = {}
        self._turns: Counter[str] = Counter()
        self._chunks: dict[tuple[str, int], _Chunk] = {}

    def write(self, outputs: Iterable[tuple[str, Sequence[Output]]]) -> None:
        for topic, records in outputs:
            count = self._counts.get(topic) or self._count(topic)
            for key, value, timestamp, headers, partition in records:
                if partition is None:
                    if key is not None:
                        partition = partition_for(key, count)
                    else:
                        partition = (self._turn + self._turns[topic]) % count
                        self._turns[topic] += 1
                chunk = self._chunks.get((topic, partition))
                if chunk is None:
                    chunk = self._chunks[topic, partition] = _Chunk()
                chunk.records.append((key, value, timestamp, headers))
                chunk.size += len(key or b"") + len(value or b"")
                if chunk.size >= _CHUNK_BYTES or len(chunk.records) >= _CHUNK_RECORDS:
                    self._append(topic, partition, chunk)
        for (topic, partition), chunk in self._chunks.items():
            if chunk.records:
                self._append(topic, partition, chunk)
        for place in self._chunks:
            # Also where nothing was appended: whoever did it before may have died before it was on the disk.
            self._handles.partition(*place).sync()

    def _count(self, topic: str) -> int:
        log = self._handles.log
        try:
            count = log.topic(topic).partitions
        except UnknownTopic:
            count = log.create_topic(topic, self._widest, exist_ok=True).partitions
        self._counts[topic] = count
        return count

    def _append(self, topic: str, partition: int, chunk: "_Chunk") -> None:
        self._handles.partition(topic, partition).append(
            chunk.records, producer=self._producer, sequence=self._sequence + chunk.number
        )
        chunk.records, chunk.size, chunk.number = [], 0, chunk.number + 1


class _Chunk:
    """Records for one partition that are not appended yet, and how many chunks were."""

    __slots__ = ("number", "records", "size")

    def __init__(self) -> None:
        self.records, self.size, self.number = list[NewRecord](), 0, 0
