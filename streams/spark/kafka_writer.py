"""What a query's shards write to Kafka, each batch exactly once. It owns the transaction of one (stage, shard, batch),
the mark in it that says the batch is there, and what is done when Kafka refuses; which records a shard writes, and in
which order, is the query's.

A shard of a stage is one transactional id: whoever opens it ends what an earlier writer left and shuts that one out.
The batch's number is committed in the same transaction, as an offset of a consumer group that has the same name; so a
batch that Spark runs again is found to be there. The group has no members, and its offsets are numbers of batches: a
monitor of lags may leave it out. Kafka forgets such an offset when no batch has come for `offsets.retention.minutes` (7
days): what was begun before must be run again by then.

A record stamped 1970-01-01T00:00:00.000 is written one millisecond later: to the client, 0 means now.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headwater.dsl.records import Headers
from headwater.errors import StreamsError

__all__ = ["KafkaWriter", "OutputRecord"]

# Key, value, timestamp, headers and the chosen partition, None for the partition of the key.
OutputRecord = tuple[bytes | None, bytes | None, int, Headers | None, int | None]

# How often a batch is written anew, and how long one request is tried, in seconds.
ATTEMPTS, PATIENCE, ANSWER = 5, 60.0, 10.0
# A client has several threads and connections: beyond so many, the one that was not used for longest is closed.
OPEN = 64
DEFAULTS: Mapping[str, Any] = {
    # Java's partitioner, so that Headwater and Kafka's own client send a key to the same place.
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 200_000,
    # A transaction begun before the broker has finished the last one is put off by this much: 100 ms unless told.
    "retry.backoff.ms": 10,
    # The other strategy, the default: when all brokers have been away, librdkafka 2.16 waits for ever in
    # send_offsets_to_transaction. What this one cannot find again, a new sender does.
    "metadata.recovery.strategy": "none",
    # Every record's success is the transaction's; only failures need a callback.
    "delivery.report.only.error": True,
    # What goes wrong is raised.
    "log_level": 2,
}
# What passes by itself, beside what the client says to be so.
AGAIN = {
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
# What no second attempt changes, and what does.
REMEDIES: Mapping[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the query the right to write to the topic (and to read the topic "
    "that carries its marks).",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant the query the right to write under the transactional id.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the query the right to read the group of that name.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the query the right of idempotent writes.",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check the name and the password in the settings.",
    KafkaError._AUTHENTICATION: "check the name and the password in the settings.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or give it the partition that was chosen.",
    KafkaError._UNKNOWN_TOPIC: "create the topic.",
    KafkaError._UNKNOWN_PARTITION: "give the topic the partition that was chosen, or choose one that it has.",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise message.max.bytes in the settings and max.message.bytes of the topic, or "
    "make the record smaller.",
    KafkaError.INVALID_TIMESTAMP: "change message.timestamp.before.max.ms or message.timestamp.after.max.ms of the "
    "topic, or the records' timestamps.",
    KafkaError.INVALID_RECORD: "give every record a key if the topic is compacted.",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower transaction.timeout.ms in the settings, or raise the broker's "
    "transaction.max.timeout.ms.",
}
LATER = "start the query again from its checkpoint when Kafka is well; the batch is then written, if it is not there."


class KafkaWriter:
    """Write a shard's batch in one transaction, unless it is there already.

    `query` is the identity of the checkpoint (a name would find the marks of an earlier checkpoint and skip batches).
    `markers` are topics that exist and that the query may read, such as its sources: a mark is an offset of partition 0
    of the first, and is looked for at all of them. `settings` are the client's (librdkafka's) own. `check=False` writes
    what is there a second time; it is for the test that shows what the check is for.
    """

    def __init__(
        self,
        bootstrap: str,
        query: str,
        settings: Mapping[str, Any] | None = None,
        *,
        markers: Sequence[str],
        check: bool = True,
    ) -> None:
        self._query = query
        self._client = {"bootstrap.servers": bootstrap, **DEFAULTS, **(settings or {})}
        self._markers = list(markers)
        self._check = check

    def write(
        self, stage: int, shard: int, batch_id: int, outputs: Iterable[tuple[str, Sequence[OutputRecord]]]
    ) -> bool:
        """Write (topic, records) pairs in their order; False if the batch was there or has no record.

        The pairs are gone through again when a transaction fails: an iterator, which cannot be, is held in memory.
        """
        pairs = list(outputs) if iter(outputs) is outputs else outputs
        if not any(records for _, records in pairs):
            return False
        identity = f"headwater-{self._query}-{stage}-{shard}"
        for attempt in range(1, ATTEMPTS + 1):
            sender = _Sender.of(identity, batch_id, self._client, self._markers)
            try:
                return sender.write(batch_id, pairs, self._check)
            except KafkaException as error:
                # Another process had the shard in between, or the transaction has failed: a new sender ends what this
                # one began, and learns whether the batch is there after all.
                sender.give_up()
                topic, fault = next(iter(sender.refused), (None, error.args[0]))
                if fault.code() in REMEDIES or attempt == ATTEMPTS:
                    place = f"Kafka at {self._client['bootstrap.servers']}" if topic is None else f"Topic {topic!r}"
                    raise StreamsError(
                        f"{place}: batch {batch_id} of stage {stage}, shard {shard} (transactional id {identity}) "
                        f"cannot be written ({fault.str()}): {REMEDIES.get(fault.code(), LATER)}"
                    ) from error
                time.sleep(0.1 * 2**attempt)
            except BaseException:
                sender.give_up()
                raise
        raise AssertionError("the last attempt returns or raises")


class _Sender:
    """The client of one transactional id in this process, kept open for the next batch.

    If that one is written here, nobody else has opened the id in between, or this client's transaction fails.
    """

    _open: ClassVar[OrderedDict[tuple[str, str], "_Sender"]] = OrderedDict()

    @classmethod
    def of(cls, identity: str, batch_id: int, client: Mapping[str, Any], markers: Sequence[str]) -> "_Sender":
        key = (identity, client["bootstrap.servers"])
        sender = cls._open.get(key)
        # A batch is missing: another process may have written it, and opening anew is faster than to be shut out.
        if sender is None or sender._last is None or batch_id > sender._last + 1:
            sender = cls._open[key] = cls(key, client, markers)
        cls._open.move_to_end(key)
        if len(cls._open) > OPEN:
            cls._open.popitem(last=False)
        return sender

    def __init__(self, key: tuple[str, str], client: Mapping[str, Any], markers: Sequence[str]) -> None:
        self._key = key
        self._client = dict(client)
        self._markers = markers
        self._group: object = None
        self._last: int | None = None
        # Topics that refused something for good, and why.
        self.refused: list[tuple[str, KafkaError]] = []
        try:
            self._producer = Producer({**client, "transactional.id": key[0], "on_delivery": _noting(self.refused)})
        except KafkaException as error:
            raise StreamsError(
                f"Kafka at {key[1]}: the client does not take its settings ({error.args[0].str()}): correct them; the "
                "names are librdkafka's."
            ) from error

    def write(self, batch_id: int, pairs: Iterable[tuple[str, Sequence[OutputRecord]]], check: bool) -> bool:
        if self._last is None:
            self._last = self._begin()
        if check and batch_id <= self._last:
            return False
        producer = self._producer
        producer.begin_transaction()
        for topic, records in pairs:
            self._produce(topic, records)
        marker = self._markers[0]
        try:
            mark = [TopicPartition(marker, 0, batch_id + 1)]
            _patiently(producer.send_offsets_to_transaction, mark, self._group, ANSWER)
        except KafkaException as error:
            self._refuse(marker, error.args[0])
            raise
        _patiently(producer.commit_transaction, ANSWER)
        self._last = batch_id
        return True

    def _begin(self) -> int:
        """Shut out who had the id before, and return the number of the last batch that is there, negative for none."""
        _patiently(self._producer.init_transactions, ANSWER)
        # Not an admin client: asked for a group's offsets while its coordinator moves, librdkafka 2.16 crashes.
        consumer = Consumer(
            {**self._client, "group.id": self._key[0], "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        try:
            self._group = consumer.consumer_group_metadata()
            # Only now, as what an earlier writer had begun could still have been committed before.
            found = _patiently(consumer.committed, [TopicPartition(topic, 0) for topic in self._markers], ANSWER)
        finally:
            consumer.close()
        for mark in found:
            if mark.error is not None:
                raise KafkaException(mark.error)
        return max(int(mark.offset) for mark in found) - 1

    def _produce(self, topic: str, records: Sequence[OutputRecord]) -> None:
        produce = self._producer.produce
        for key, value, timestamp, headers, partition in records:
            while True:
                try:
                    produce(
                        topic,
                        value,
                        key,
                        partition=-1 if partition is None else partition,
                        timestamp=timestamp or 1,
                        headers=list(headers) if headers else None,
                    )
                    break
                except BufferError:
                    # The queue is full: wait until some of it has been delivered, or has failed.
                    self._producer.poll(0.1)
                except KafkaException as error:
                    self._refuse(topic, error.args[0])
                    raise

    def _refuse(self, topic: str, fault: KafkaError) -> None:
        if fault.code() in REMEDIES:
            self.refused.append((topic, fault))

    def give_up(self) -> None:
        """End the transaction and forget the client."""
        self._open.pop(self._key, None)
        self._producer.purge()
        # Whoever opens the id next ends what cannot be ended here; until then it only holds up readers.
        with suppress(KafkaException):
            self._producer.abort_transaction(ANSWER)


def _noting(refused: list[tuple[str, KafkaError]]) -> Callable[[KafkaError | None, Message], None]:
    # Not a method: a client that holds its sender, which holds it, would stay open until the garbage is collected.
    def delivered(fault: KafkaError | None, message: Message) -> None:
        if fault is not None and fault.code() in REMEDIES:
            refused.append((str(message.topic()), fault))

    return delivered


def _patiently(call: Callable[..., Any], *arguments: object) -> Any:
    """Call again, as long as this may help."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call(*arguments)
        except KafkaException as error:
            fault = error.args[0]
            if not (fault.retriable() or fault.code() in AGAIN) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
