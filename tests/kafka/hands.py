"""Processes that write a shard's batches, and can be held up, killed, or asked again later."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from headwater.streams.spark.kafka_writer import KafkaWriter, OutputRecord

SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 120.0
HALF, DONE = "half", "done"


def batch_values(batch: int, size: int) -> list[bytes]:
    return [b"%d.%d" % (batch, number) for number in range(size)]


def batch_records(batch: int, size: int) -> list[OutputRecord]:
    return [(b"k", value, 1 + number, None, None) for number, value in enumerate(batch_values(batch, size))]


class Hand:
    """A process that writes one batch after the other when told to; a stand-in for a worker of Spark's."""

    def __init__(self, writer: KafkaWriter, topic: str) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(writer, topic, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, batch: int, size: int, *, stop: str = "") -> None:
        """Start a batch; stop=HALF holds it up in the middle of its first attempt, DONE after it was written."""
        self._pipe.send((batch, size, stop))

    def await_stop(self) -> None:
        assert self._answer() == "stopped"

    def go_on(self) -> None:
        self._pipe.send("go on")

    def result(self) -> bool:
        """Whether the batch was written now."""
        answer = self._answer()
        assert isinstance(answer, bool), answer
        return answer

    def write(self, batch: int, size: int) -> bool:
        self.begin(batch, size)
        return self.result()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.join()

    def _answer(self) -> Any:
        assert self._pipe.poll(PATIENCE), "no answer"
        return self._pipe.recv()


class _Held:
    """Pairs of a topic and records that stop between two halves when they are written for the first time."""

    def __init__(self, topic: str, records: list[OutputRecord], pipe: Connection) -> None:
        self._topic, self._records, self._pipe = topic, records, pipe
        self._passes = 0

    def __iter__(self) -> Iterator[tuple[str, list[OutputRecord]]]:
        middle = len(self._records) // 2
        self._passes += 1
        yield self._topic, self._records[:middle]
        # The first pass only looks whether there is anything.
        if self._passes == 2:
            _stop(self._pipe)
        yield self._topic, self._records[middle:]


def _stop(pipe: Connection) -> None:
    pipe.send("stopped")
    pipe.recv()


def _serve(writer: KafkaWriter, topic: str, pipe: Connection) -> None:
    while True:
        try:
            batch, size, stop = pipe.recv()
        except EOFError:
            return
        records = batch_records(batch, size)
        try:
            written = writer.write(0, 0, batch, _Held(topic, records, pipe) if stop == HALF else [(topic, records)])
            if stop == DONE:
                _stop(pipe)
            pipe.send(written)
        except Exception as error:
            pipe.send(repr(error))
