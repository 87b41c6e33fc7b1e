"""What a worker writes to Kafka: results, changelog records and offsets, in one transaction for each commit. It owns
the producer, when a transaction is begun, tried again or given up, and what is told when the brokers take none of it.

A transaction is opened when there is something to commit and closed at once: it holds up nobody who reads committed
records, and when it fails none of it has happened. Without transactions (at least once) records are written first and
offsets committed after them.

librdkafka does not have KIP-890's transactions: all transactions of a producer have the same epoch. When a connection
breaks, it sends what was under way again, and the first copy may still arrive: the end of one transaction would end the
next one in its middle, old offsets would replace new ones. So a producer that any request of has been in doubt begins
no other transaction: it is dropped, and the next one, whose epoch is higher, has the brokers refuse whatever comes
late. Whether the last commit has happened, the group's offsets say from then on.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from headwater.dsl.records import Headers
from headwater.errors import StreamsError
from headwater.streams.connection import Passing, Place, Undone
from headwater.streams.kafka.client_log import client_log
from headwater.streams.kafka.cluster import kafka_fault
from headwater.streams.kafka.plain_notes import send_offsets
from headwater.streams.kafka.seat import Seat
from headwater.streams.kafka.settings import for_producers

__all__ = ["TRANSACTION_MS", "NewRecord", "Writer"]

log = logging.getLogger("headwater")

# topic, partition, key, value, timestamp, headers
NewRecord: TypeAlias = tuple[str, int, bytes | None, bytes | None, int, Headers]

# How long, in milliseconds, a transaction may last before the brokers end it: a worker that dies in one holds up
# readers.
TRANSACTION_MS = 10_000
# How long a commit is tried, and how long the brokers may take to let a new producer begin.
COMMIT_SECONDS, OPEN_SECONDS = 60.0, 30.0
# How long a group that has changed may take to tell its members; how long it may take to take offsets, and how much
# longer the client may take before it is given up.
EPOCH_SECONDS, OFFSETS_SECONDS, STUCK_SECONDS = 3.0, 5.0, 1.0
_SETTINGS: Mapping[str, Any] = {
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
    # The brokers need a moment between two transactions; the default of 100 ms made each one take that long.
    "retry.backoff.ms": 5,
}
# What a batch of one record has at least beside it; and what librdkafka sends by default.
FRAME_BYTES = 70
MESSAGE_BYTES = 1_000_000
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE}
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
# Connections that break before a request can be made on them, or that the client itself has no more use for.
_NO_REQUEST = re.compile(
    r"in state (INIT|DOWN|TRY_CONNECT|CONNECT|SSL_HANDSHAKE|APIVERSION_QUERY|AUTH_LEGACY|AUTH_HANDSHAKE|AUTH_REQ)\b"
    r"|\(_DESTROY"
)
# The least that Python's logging calls what the client logs up to a `log_level` of so much.
_LEVELS = (logging.CRITICAL, logging.CRITICAL, logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO)


class _Connections:
    """Hears from a producer's log whether its connections hold; `doubt` says why a request may come late, or twice.

    librdkafka sends again by itself what was under way on a connection that broke, and says so nowhere else. It tells
    all of it to who debugs `broker`: a handful of lines for each commit, which go no further.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.doubt = ""
        level = int(settings.get("log_level", 6))
        self._least = logging.DEBUG if "debug" in settings or level > 6 else _LEVELS[min(level, 5)]
        contexts = [settings["debug"]] if "debug" in settings else []
        self.settings = {"debug": ",".join([*contexts, "broker"]), "log_level": 7}

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """Take what the client logs."""
        if facility == "REQTMOUT" or (facility == "FAIL" and not _NO_REQUEST.search(text)):
            self.doubt = text
        if level >= self._least:
            client_log.log(level, form, facility, client, text)


class Writer:
    """One worker's producer; with a transactional id each `write` is a transaction."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str | None) -> None:
        self._settings = {**_SETTINGS, **for_producers(settings), "enable.idempotence": True}
        if transactional_id is not None:
            self._settings = {
                "transaction.timeout.ms": TRANSACTION_MS, **self._settings, "transactional.id": transactional_id
            }  # fmt: skip
        self._transactional = transactional_id is not None
        self._producer: Producer | None = None
        self._connections = _Connections(self._settings)
        # What the brokers have said of the records of this commit: offsets after the last ones, and faults.
        self._reached: dict[Place, int] = {}
        self._faults: dict[Place, KafkaError] = {}

    def largest_record(self, largest_batch: int | None) -> int:
        """How many bytes a record may have for a topic that takes batches of so many; None if that is not known."""
        own = int(self._settings.get("message.max.bytes", MESSAGE_BYTES))
        codec = self._settings.get("compression.codec", self._settings.get("compression.type", "none"))
        # Topics count what arrives: how large a record is when it is compressed is not known before.
        if largest_batch is None or codec != "none":
            return own
        return min(own, largest_batch - FRAME_BYTES)

    def bound_batches(self, sizes: Iterable[int]) -> None:
        """Send no batches that a topic is too small for: the client does not divide one that was refused."""
        smallest = min(sizes, default=MESSAGE_BYTES)
        if smallest < int(self._settings.get("batch.size", MESSAGE_BYTES)):
            self._settings["batch.size"] = smallest

    @property
    def timeout_ms(self) -> int | None:
        """How long a transaction may last; None where there is none."""
        return int(self._settings["transaction.timeout.ms"]) if self._transactional else None

    def open(self) -> Producer:
        """Be the only one who writes under the transactional id, so that what its last owner has left open ends."""
        if self._producer is None:
            connections = _Connections(self._settings)
            try:
                if self._transactional:
                    producer = Producer({**self._settings, **connections.settings}, logger=connections)
                    producer.init_transactions(OPEN_SECONDS)
                else:
                    producer = Producer(self._settings, logger=client_log)
            except KafkaException as error:
                raise kafka_fault("Kafka does not let this worker write", error.args[0]) from error
            self._producer, self._connections = producer, connections
        return self._producer

    def write(self, records: Iterable[NewRecord], offsets: Sequence[TopicPartition], seat: Seat) -> dict[Place, int]:
        """Write records and offsets; the offset after the last record of each partition. Undone: none of it stands."""
        producer = self.open()
        try:
            if self._transactional:
                self._reached.clear()
                self._faults.clear()
                self._begin(producer, offsets, seat)
                self._send(producer, records)
                self._try(producer.commit_transaction, offsets)
            else:
                self._send(producer, records)
                self._flush(producer)
                self._commit(seat, offsets)
        except KafkaException as error:
            self._undo(error.args[0])
        except StreamsError:
            self._abort(producer)
            raise
        reached = dict(self._reached)
        if self._in_doubt(producer):
            self._drop()
        return reached

    def _in_doubt(self, producer: Producer) -> bool:
        """Whether a request of this producer may still be on its way to the brokers."""
        if not self._transactional:
            return False
        # What the client has logged is heard here.
        producer.poll(0)
        if self._connections.doubt:
            log.info(
                "a connection broke in a transaction (%s): a new producer begins, so that nothing of this one can "
                "arrive in the next transaction",
                self._connections.doubt,
            )
        return bool(self._connections.doubt)

    def _begin(self, producer: Producer, offsets: Sequence[TopicPartition], seat: Seat) -> None:
        """Begin a transaction with the offsets: whoever is given one of these tasks waits from now on until it is over.

        They come before the records, so that nothing has to be thrown away when the brokers do not take them: the
        client would leave a gap in its sequence numbers, and the next transaction would fail of it.
        """
        deadline = time.monotonic() + EPOCH_SECONDS
        while True:
            producer.begin_transaction()
            try:
                if offsets:
                    self._try(partial(self._send_offsets, producer), offsets, offsets, seat.metadata())
                return
            except KafkaException as error:
                # The group has changed, and its news to this member are still on their way. A member that the group
                # has gone on without learns of it only in the seat's `poll`, and until then its offsets are refused.
                if error.args[0].code() != KafkaError.ILLEGAL_GENERATION or time.monotonic() > deadline:
                    raise
                if self._in_doubt(producer):
                    raise
            producer.abort_transaction(COMMIT_SECONDS)
            time.sleep(0.01)

    def _send_offsets(
        self, producer: Producer, offsets: Sequence[TopicPartition], proof: bytes, seconds: float
    ) -> None:
        """Bring offsets into a transaction, in a thread that can be left alone.

        When the group's broker goes away in it, the client may never come back from this call, however long it was
        allowed to take (librdkafka's issues 5456 and 5511). What it has begun is nothing: the next producer ends it.
        """
        answer: SimpleQueue[BaseException | None] = SimpleQueue()
        seconds = min(seconds, OFFSETS_SECONDS)

        def ask() -> None:
            try:
                send_offsets(producer, offsets, proof, seconds)
            except BaseException as fault:
                answer.put(fault)
            else:
                answer.put(None)

        threading.Thread(target=ask, name="headwater-offsets-of-a-commit", daemon=True).start()
        try:
            fault = answer.get(timeout=seconds + STUCK_SECONDS)
        except Empty:
            self._producer = None
            raise Undone(
                f"Kafka has not taken the offsets of a commit within {seconds:.1f} s ({_listed(offsets)})"
            ) from None
        if fault is not None:
            raise fault

    def listen(self) -> None:
        """Take what the client has logged or delivered meanwhile: it gathers until somebody does."""
        if self._producer is not None:
            self._producer.poll(0)

    def send(self, records: Iterable[NewRecord]) -> None:
        """Write records outside of any commit; what becomes of them is told by the next `write`."""
        producer = self.open()
        try:
            self._send(producer, records)
        except KafkaException as error:
            raise kafka_fault("results cannot be written", error.args[0]) from error
        producer.poll(0)

    def _send(self, producer: Producer, records: Iterable[NewRecord]) -> None:
        # Only the last record of a partition reports back: a call for each would cost half as much again.
        kept: dict[Place, NewRecord] = {}
        for record in records:
            place = record[0], record[1]
            before = kept.get(place)
            kept[place] = record
            if before is not None:
                self._produce(producer, before, None if self._transactional else self._note)
        for record in kept.values():
            self._produce(producer, record, self._note)

    def _produce(self, producer: Producer, record: NewRecord, report: Callable[..., None] | None) -> None:
        topic, partition, key, value, timestamp, headers = record
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    report,
                    # 0 is the client's word for now.
                    timestamp=timestamp or 1,
                    headers=list(headers) if headers else None,
                )
                return
            except BufferError:
                producer.poll(0.01)
            except KafkaException as error:
                if error.args[0].code() in _TOO_LARGE:
                    size = len(key or b"") + len(value or b"")
                    raise StreamsError(
                        f"a record of {size:,} bytes for {topic}-{partition} is larger than the client may send "
                        f"({error.args[0].str()}): allow more (--set message.max.bytes=…, and max.message.bytes of the "
                        "topic), or make it smaller."
                    ) from error
                raise

    def _note(self, error: KafkaError | None, message: Message) -> None:
        place = str(message.topic()), int(message.partition() or 0)
        if error is not None:
            self._faults[place] = error
        else:
            self._reached[place] = int(message.offset() or 0) + 1

    def _flush(self, producer: Producer) -> None:
        if producer.flush(COMMIT_SECONDS):
            producer.purge()
            producer.flush(1)
        faults, self._faults = self._faults, {}
        for (topic, partition), error in faults.items():
            if error.code() in _TOO_LARGE:
                raise StreamsError(_too_large(f"{topic}-{partition}: {error.str()}"))
            raise Undone(f"{topic}-{partition} has not taken its records ({error.str()})")

    def _commit(self, seat: Seat, offsets: Sequence[TopicPartition]) -> None:
        try:
            seat.commit(offsets)
        except Passing as fault:
            raise Undone(f"offsets could not be committed ({fault})") from fault

    def _try(self, step: Callable[..., None], offsets: Sequence[TopicPartition], *arguments: object) -> None:
        """Take a step of a transaction, again and again while that may help."""
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                step(*arguments, max(0.1, min(10.0, deadline - time.monotonic())))
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                self._connections.doubt = error.args[0].str()
                if time.monotonic() > deadline:
                    raise Passing(
                        f"a commit has not gone through within {COMMIT_SECONDS:.0f} s ({error.args[0].str()}); it was "
                        f"to commit these inputs: {_listed(offsets) or 'none'}"
                    ) from error

    def _undo(self, error: KafkaError) -> None:
        """Give a transaction up that cannot be committed, and say that its work is undone.

        The next producer ends it. This one does not: what it has sent may still be under way.
        """
        self._drop()
        # What was purged had not been sent yet: the fault is another's.
        refused = "; ".join(
            f"{topic}-{number}: {fault.str()}"
            for (topic, number), fault in self._faults.items()
            if fault.code() not in _PURGED
        )
        if error.code() in _TOO_LARGE:
            raise StreamsError(_too_large(refused or error.str()))
        fault = kafka_fault("a commit has failed", error)
        raise Undone(f"a commit has failed ({refused or error.str()})") if isinstance(fault, Passing) else fault

    def _abort(self, producer: Producer) -> None:
        if not self._transactional or self._producer is not producer:
            return
        if self._in_doubt(producer):
            self._drop()
            return
        try:
            producer.abort_transaction(COMMIT_SECONDS)
        except KafkaException as error:
            log.warning("a transaction could not be ended (%s): the brokers will end it", error.args[0].str())
            self._drop()

    def _drop(self) -> None:
        """Forget a producer that is of no more use; the next one under its id ends what it has left open."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def close(self) -> None:
        """Let go of the cluster."""
        self._producer = None


def _listed(offsets: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{at.topic}-{at.partition}@{at.offset}" for at in offsets)


def _too_large(refused: str) -> str:
    return (
        f"a record is larger than its topic takes ({refused}): allow more (max.message.bytes of the topic, and --set "
        "message.max.bytes=…), or make it smaller."
    )
