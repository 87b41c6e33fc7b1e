"""The producer: records one by one in, batches appended. It owns what a record may be and, on the embedded log, the
choice of the partition and when a batch is full or has waited long enough; appending is the log's. For a Kafka cluster
it is streams/kafka/producer.py that a Producer comes from."""

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from headwater.dsl.partitioner import partition_for
from headwater.errors import SerdeError, StreamsError
from headwater.state.log import Headers, NewRecord, Partition, StorageError, TopicInfo, UnknownTopic
from headwater.streams.broker import DEFAULT_BROKER, is_kafka, open_log
from headwater.streams.kafka.settings import kafka_settings

__all__ = ["Producer", "checked_batching", "checked_record"]

# A topic may get more partitions while records are sent to it: how long that may go unnoticed.
_REFRESH_SECONDS = 1.0
# What a record takes in a batch beside its key and value, roughly.
_RECORD_BYTES = 24


class _Topic:
    """What is known of a topic, since when, and whose turn it is among its partitions."""

    __slots__ = ("info", "seen", "turn")

    def __init__(self, info: TopicInfo, seen: float, turn: int) -> None:
        self.info, self.seen, self.turn = info, seen, turn


class _Batch:
    """The records of one partition that are not appended yet."""

    __slots__ = ("partition", "records", "size")

    def __init__(self, partition: Partition) -> None:
        self.partition, self.records, self.size = partition, list[NewRecord](), 0

    def clear(self) -> None:
        self.records, self.size = [], 0


class Producer:
    """Send records to the topics of an embedded log, or of a Kafka cluster. Threads may share one.

    A record waits in a batch until `batch_bytes` are together, `linger` has passed, or `flush()` is called; with a
    linger of zero `send` itself appends it. `sync=True` has each batch on the log's disk before it counts as appended;
    Kafka's brokers always wait for all in-sync replicas. `kafka` are settings of Kafka's client, by librdkafka's names.

    >>> from tempfile import TemporaryDirectory
    >>> from headwater import Admin, Consumer, Producer
    >>> folder = TemporaryDirectory()
    >>> broker = f"log://{folder.name}"
    >>> Admin(broker).create_topic("orders", partitions=2)
    >>> with Producer(broker) as producer:
    ...     producer.send("orders", key="ann", value='{"amount": 12}', timestamp=1000)
    >>> with Consumer(broker, "orders") as consumer:
    ...     [(record.partition, record.key, record.value) for record in consumer.poll()]
    [(0, b'ann', b'{"amount": 12}')]
    >>> folder.cleanup()
    """

    def __new__(cls, broker: str = DEFAULT_BROKER, **options: Any) -> "Producer":
        """The one for the address: on Kafka, a Producer whose records go there."""
        if cls is Producer and is_kafka(broker):
            # First of all: it says so where the client is not installed.
            kafka_settings(broker, options.get("kafka") or {})
            from headwater.streams.kafka.producer import KafkaProducer

            return super().__new__(KafkaProducer)
        return super().__new__(cls)

    def __init__(
        self,
        broker: str = DEFAULT_BROKER,
        *,
        linger: timedelta = timedelta(milliseconds=5),
        batch_bytes: int = 256 << 10,
        sync: bool = False,
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        checked_batching(linger, batch_bytes)
        self._log = open_log(broker)
        self._linger = linger.total_seconds()
        self._batch_bytes = batch_bytes
        self._sync = sync
        self._topics: dict[str, _Topic] = {}
        self._batches: dict[tuple[str, int], _Batch] = {}
        # Guards all of the above and wakes the thread that appends what has waited long enough.
        self._wake = threading.Condition()
        self._waiting_since: float | None = None
        self._failure: StreamsError | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        value: bytes | str | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Take a record for a topic; text becomes UTF-8, the timestamp is epoch milliseconds and now unless given.

        The partition is the one given, else that of the key by Kafka's hash, else the next in turn. If this raises,
        this record was not taken; those taken before are still there and are tried again at the next call, unless the
        error says that they are lost.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Admin, Consumer, Producer
        >>> folder = TemporaryDirectory()
        >>> broker = f"log://{folder.name}"
        >>> Admin(broker).create_topic("readings", partitions=3)
        >>> with Producer(broker) as producer:
        ...     for celsius in ("20.5", "21.0", "19.8", "20.1"):
        ...         producer.send("readings", value=celsius, headers=[("unit", "C")])
        >>> with Consumer(broker, "readings") as consumer:
        ...     [(record.partition, record.value) for record in consumer.poll()]
        [(0, b'20.5'), (0, b'20.1'), (1, b'21.0'), (2, b'19.8')]
        >>> folder.cleanup()
        """
        record = checked_record(topic, key, value, timestamp, headers)
        with self._wake:
            if self._closed:
                raise StreamsError("The producer is closed: make another to send more.")
            if self._failure:
                self._settle()
            batch = self._batch(topic, record[0], partition)
            if batch.size >= self._batch_bytes:
                self._append(batch)
            batch.records.append(record)
            if self._linger == 0:
                try:
                    self._append(batch)
                except StorageError:
                    batch.clear()
                    raise
                return
            batch.size += _RECORD_BYTES + len(record[0] or b"") + len(record[1] or b"")
            if self._waiting_since is None:
                self._begin_to_wait()

    def _batch(self, name: str, key: bytes | None, number: int | None) -> _Batch:
        now = time.monotonic()
        topic = self._topics.get(name)
        if topic is None or now - topic.seen > _REFRESH_SECONDS:
            topic = self._topics[name] = _Topic(self._log.topic(name), now, topic.turn if topic else 0)
        info = topic.info
        if key is None and info.compact:
            raise StreamsError(f"The topic {name!r} is compacted by key: give each record for it a key.")
        if number is None:
            if key is not None:
                number = partition_for(key, info.partitions)
            else:
                number = topic.turn % info.partitions
                topic.turn = number + 1
        batch = self._batches.get((name, number))
        if batch is None:
            batch = self._batches[name, number] = _Batch(self._log.partition(name, number))
        return batch

    def _begin_to_wait(self) -> None:
        self._waiting_since = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._append_in_time, name="headwater-producer", daemon=True)
            self._thread.start()
        self._wake.notify()

    def _append_in_time(self) -> None:
        """Append what has waited as long as `linger`, until closed."""
        with self._wake:
            while not self._closed:
                if self._waiting_since is None:
                    self._wake.wait()
                elif (rest := self._waiting_since + self._linger - time.monotonic()) > 0:
                    self._wake.wait(rest)
                else:
                    try:
                        self._flush()
                    except StreamsError as error:
                        # Nobody is here to be told: the next send, flush or close will be.
                        self._failure = error

    def flush(self) -> None:
        """Append all that was sent so far; raise if some of it cannot be.

        >>> from tempfile import TemporaryDirectory
        >>> from datetime import timedelta
        >>> from headwater import Admin, Consumer, Producer
        >>> folder = TemporaryDirectory()
        >>> broker = f"log://{folder.name}"
        >>> Admin(broker).create_topic("orders")
        >>> with Producer(broker, linger=timedelta(hours=1)) as producer, Consumer(broker, "orders") as consumer:
        ...     producer.send("orders", value="tea")
        ...     print(len(consumer.poll()))
        ...     producer.flush()
        ...     print(len(consumer.poll()))
        0
        1
        >>> folder.cleanup()
        """
        with self._wake:
            self._settle()

    def _settle(self) -> None:
        """Append everything, and raise what happened in the background unless that could be made good."""
        failure, self._failure = self._failure, None
        self._flush()
        if failure and not isinstance(failure, StorageError):
            raise failure

    def _flush(self) -> None:
        self._waiting_since = None
        failure: StreamsError | None = None
        for batch in list(self._batches.values()):
            if batch.records:
                try:
                    self._append(batch)
                except StreamsError as error:
                    failure = failure or error
        if failure:
            raise failure

    def _append(self, batch: _Batch) -> None:
        """Append the batch and empty it; on a StorageError it stays, on any other error it is given up."""
        topic, number = batch.partition.topic, batch.partition.number
        try:
            try:
                batch.partition.append(batch.records, sync=self._sync)
            except UnknownTopic:
                # Deleted; if it was made again since, its records go there.
                self._topics.pop(topic, None)
                del self._batches[topic, number]
                batch.partition.close()
                batch.partition = self._log.partition(topic, number)
                self._batches[topic, number] = batch
                batch.partition.append(batch.records, sync=self._sync)
        except StorageError:
            raise
        except StreamsError as error:
            count = len(batch.records)
            batch.clear()
            records = "1 record is" if count == 1 else f"{count:,} records are"
            raise StreamsError(f"{records} lost, sent to {topic}-{number} and not appended: {error}") from error
        batch.clear()

    def close(self) -> None:
        """Append all that was sent so far, to the disk, and let go of the log; a second time does nothing.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater import Producer
        >>> with TemporaryDirectory() as folder:
        ...     producer = Producer(f"log://{folder}")
        ...     producer.close()
        ...     producer.send("orders", value="tea")
        Traceback (most recent call last):
        headwater.errors.StreamsError: The producer is closed: make another to send more.
        """
        with self._wake:
            if self._closed:
                return
            self._closed = True
            self._wake.notify()
            try:
                self._settle()
                for batch in self._batches.values():
                    batch.partition.sync()
            finally:
                for batch in self._batches.values():
                    batch.partition.close()


def checked_batching(linger: timedelta, batch_bytes: int) -> None:
    """Raise unless records can be gathered so."""
    if linger < timedelta(0) or batch_bytes < 1:
        raise StreamsError(f"A producer cannot have linger={linger}, batch_bytes={batch_bytes}: 0 and 1 at least.")


def checked_record(
    topic: str,
    key: bytes | str | None,
    value: bytes | str | None,
    timestamp: int | None,
    headers: Iterable[tuple[str, bytes | str | None]],
) -> NewRecord:
    """Return what was given to `send` as a record, text as UTF-8, the time as now unless given; raise what is none."""
    key, value = _encoded(topic, "key", key), _encoded(topic, "value", value)
    if timestamp is None:
        timestamp = time.time_ns() // 1_000_000
    elif type(timestamp) is not int or not 0 <= timestamp < 1 << 63:
        raise SerdeError(f"{topic}: a timestamp is epoch milliseconds, 0 or more, and not {timestamp!r}.")
    return key, value, timestamp, _headers(topic, headers) if headers else ()


def _encoded(topic: str, what: str, data: object) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    raise SerdeError(f"{topic}: a {what} is bytes, text or None and not {data!r}: encode it first.")


def _headers(topic: str, headers: Iterable[tuple[str, bytes | str | None]]) -> Headers:
    checked = []
    for header in headers:
        match header:
            case (str() as name, value):
                checked.append((name, _encoded(topic, "header", value)))
            case _:
                raise SerdeError(f"{topic}: a header is a name and bytes, text or None, and not {header!r}.")
    return tuple(checked)
