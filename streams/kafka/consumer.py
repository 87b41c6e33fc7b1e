"""The consumer of a Kafka cluster. It owns positions, when they are committed, and when all there is has been read;
fetching is librdkafka's, and which of a group's partitions are this member's the brokers'."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from headwater.dsl.options import check_flag
from headwater.errors import StreamsError
from headwater.state.log import OutOfRange
from headwater.streams.consumer import Consumer, ConsumerRecord, Place, Start, checked_wish
from headwater.streams.kafka.questions import ANSWER, UNKNOWN, KafkaQuestions

__all__ = ["KafkaConsumer"]

_log = logging.getLogger("headwater")
_CHUNK = 500
# How often a consumer that reads alone looks for new partitions, and whether its topics are still there.
_LOOK_SECONDS = 1.0
# How long a member waits to be given partitions before it says that there is nothing to read.
_JOIN_SECONDS = 10.0
_DEFAULTS: Mapping[str, object] = {
    # So long brokers hold back the word that a partition has no more: it is also how soon we know.
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
}
_OWN: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    # Where reading goes on if what was to come is gone is decided here, and said.
    "auto.offset.reset": "error",
}


class _Read:
    """A partition this consumer reads: what was handed out, what was committed, and where it was seen to end."""

    __slots__ = ("committed", "end", "paused", "position")

    def __init__(self, position: int, committed: int | None) -> None:
        self.position, self.committed = position, committed
        self.end, self.paused = -1, False


class KafkaConsumer(Consumer):
    """What `Consumer` is for a `kafka://` address. Only records of committed transactions are read."""

    def __init__(
        self,
        broker: str,
        topics: str | Iterable[str],
        *,
        group: str | None = None,
        start: Start = "earliest",
        partitions: Iterable[int] | None = None,
        commit_interval: timedelta | None = timedelta(seconds=5),
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        self.topics, self._numbers = checked_wish(topics, group, start, partitions)
        self._start, self._in_group = start, group is not None
        self._closed = False
        self._questions = KafkaQuestions(broker, kafka)
        # Partitions that come later are read from their beginning: else what was sent before they were seen is missed.
        self._known = {topic: self._questions.partitions(topic) for topic in self.topics}
        # librdkafka wants a group in any case; without one of the user's nothing is asked or told under it.
        own = {**_OWN, "group.id": group or "headwater-alone"}
        self._client = self._questions.client(Client, _DEFAULTS, own, tell=True)
        self._incremental = (kafka or {}).get("group.protocol", "").lower() == "consumer"
        self._reads: dict[Place, _Read] = {}
        # Fetched and not handed out yet: iterating hands out one by one.
        self._ahead: deque[ConsumerRecord] = deque()
        self._commit_seconds = None if commit_interval is None else commit_interval.total_seconds()
        now = time.monotonic()
        self._next_commit = now + (self._commit_seconds or 0)
        self._next_look = now + _LOOK_SECONDS
        # When to stop waiting for the first share.
        self._joining_until = now + _JOIN_SECONDS if self._in_group else now
        try:
            if self._in_group:
                self._client.subscribe(
                    list(self.topics), on_assign=self._assigned_to, on_revoke=self._taken, on_lost=self._lost
                )
            else:
                self._read_alone(self._alone_now(self._known))
        except BaseException:
            self.close(commit=False)
            raise

    @property
    def member(self) -> str | None:
        """The name under which others see this consumer in its group, None without one."""
        return (self._client.memberid() or None) if self._in_group and not self._closed else None

    def close(self, *, commit: bool = True) -> None:
        """Commit what was handed out, unless told not to, and leave the group; a second time does nothing."""
        if self._closed:
            return
        check_flag("close: commit", commit)
        try:
            if commit and self._commit_seconds is not None:
                self._commit_quietly(self._reads)
        finally:
            # Leaving takes the partitions away, which must not commit a second time, or at all.
            self._closed = True
            self._client.close()
            self._reads, self._ahead = {}, deque()

    # Reading

    def poll(self, max_records: int = _CHUNK, timeout: timedelta = timedelta(0)) -> list[ConsumerRecord]:
        """Return the next records, in order within each partition; wait for the first as long as `timeout` says.

        None come back only when all there is has been read; without a timeout the brokers are asked how much that is.
        """
        self._check_open()
        deadline = time.monotonic() + timeout.total_seconds()
        # Where a partition was seen to end is enough for one who waits, since what is new comes by itself.
        ends: dict[Place, int] | None = {} if timeout <= timedelta(0) else None
        self._tend()
        while True:
            left = deadline - time.monotonic()
            self._fetch(max_records, min(left, 0.5) if left > 0 else 0.0 if ends == {} else 0.05)
            found: list[ConsumerRecord] = []
            while self._ahead and len(found) < max_records:
                found.append(self._hand_out())
            if found:
                return found
            now = time.monotonic()
            if now >= deadline and (self._reads or now >= self._joining_until):
                active = [place for place, read in self._reads.items() if not read.paused]
                if ends is not None and ends.keys() != set(active):
                    ends = self._questions.ends(active)
                if all(self._is_read(place, ends) for place in active):
                    return []
                if now > deadline + ANSWER:
                    raise StreamsError(
                        f"{self._questions.where} has more records of {', '.join(self.topics)} and does not give them: "
                        "look whether its brokers are well, and try again."
                    )
            self._tend()

    def _is_read(self, place: Place, ends: Mapping[Place, int] | None) -> bool:
        """Whether a partition was read up to these ends, or to the one where it was last seen to end."""
        read = self._reads[place]
        # Where it was seen to end may lie behind the last record: transactions leave marks.
        return read.end >= read.position if ends is None else max(read.position, read.end) >= ends[place]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield record by record, without an end; each counts as handed out when it is yielded."""
        while True:
            self._check_open()
            self._tend()
            if not self._ahead:
                self._fetch(_CHUNK, 0.1)
            if self._ahead:
                yield self._hand_out()

    def _hand_out(self) -> ConsumerRecord:
        record = self._ahead.popleft()
        self._reads[record.topic, record.partition].position = record.offset + 1
        return record

    def _fetch(self, room: int, seconds: float) -> None:
        """Take up to so many records from the client, waiting for the first."""
        if len(self._ahead) >= room:
            return
        with self._questions.to(f"give records of {', '.join(self.topics)}"):
            first = self._client.poll(0 if self._ahead else seconds)
            messages = [] if first is None else [first, *(self._client.consume(room - 1, 0) if room > 1 else ())]
        fault: StreamsError | None = None
        for message in messages:
            place = (str(message.topic()), message.partition() or 0)
            error = message.error()
            if error is None:
                if place in self._reads:
                    self._ahead.append(_record(place, message))
                continue
            try:
                self._heed(place, message, error)
            except StreamsError as heard:
                fault = fault or heard
        # Not before the others are taken: the client does not give them again.
        if fault is not None:
            raise fault

    def _heed(self, place: Place, message: Message, error: KafkaError) -> None:
        """Do what an event of the client's asks for."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if place in self._reads:
                self._reads[place].end = message.offset() or 0
        elif code == KafkaError._AUTO_OFFSET_RESET:
            if place in self._reads:
                self._go_on(place)
        elif code in UNKNOWN:
            raise self._questions.unknown(place[0])
        elif code == KafkaError._MAX_POLL_EXCEEDED:
            _log.warning("%s: poll() was not called in time, so the group goes on without this member.", error.str())
        elif error.fatal() or not error.retriable():
            raise self._questions.fault(f"give records of {', '.join(self.topics)}", error)
        else:
            _log.warning("%s: %s. Trying again.", self._questions.where, error.str())

    def _go_on(self, place: Place) -> None:
        """What was to come next is gone: go on at the start of what is left, or at the end, if that is allowed."""
        read = self._reads[place]
        gone = self._out_of_range(place, read.position)
        read.position, read.end = self._instead(gone), -1
        _log.warning("%s Going on at %d.", gone, read.position)
        # Not by seeking: the client has given the partition up.
        if self._incremental:
            self._client.incremental_unassign([TopicPartition(*place)])
            self._client.incremental_assign([TopicPartition(*place, read.position)])
        else:
            self._assign()

    def _out_of_range(self, place: Place, offset: int) -> OutOfRange:
        start, end = self._questions.starts([place])[place], self._questions.ends([place])[place]
        return OutOfRange(f"{place[0]}-{place[1]}", offset, start, end)

    def _instead(self, gone: OutOfRange) -> int:
        if self._start == "committed":
            raise gone
        return gone.end if self._start == "latest" else gone.start

    def _seek(self, place: Place) -> None:
        """Have the client go on at the position; what was fetched before is void."""
        self._ahead = deque(record for record in self._ahead if (record.topic, record.partition) != place)
        at = TopicPartition(*place, self._reads[place].position)
        deadline = time.monotonic() + ANSWER
        while True:
            try:
                self._client.seek(at)
                return
            except KafkaException as error:
                # It has not begun to fetch the partition yet.
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:
                    raise self._questions.fault(
                        f"go on at another place of {place[0]}-{place[1]}", error.args[0]
                    ) from error
            time.sleep(0.01)

    # Who reads what

    def _tend(self) -> None:
        """Commit and look for new partitions, when it is time to; all that was handed out counts as processed."""
        now = time.monotonic()
        if self._commit_seconds is not None and self._in_group and now >= self._next_commit:
            self._commit_quietly(self._reads)
            self._next_commit = now + self._commit_seconds
        if not self._in_group and now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            counts = {topic: self._questions.partitions(topic) for topic in self.topics}
            new = [place for place in self._alone_now(counts) if place not in self._reads]
            if new:
                self._read_alone(new)

    def _alone_now(self, counts: Mapping[str, int]) -> list[Place]:
        places = []
        for topic, count in counts.items():
            for number in range(count) if self._numbers is None else self._numbers:
                if not 0 <= number < count:
                    raise self._questions.no_partition(topic, count, number)
                places.append((topic, number))
        return places

    def _read_alone(self, new: list[Place]) -> None:
        for place, offset in self._beginnings(new).items():
            self._reads[place] = _Read(offset, None)
        self._assign()

    def _assign(self) -> None:
        """Have the client read all partitions from their positions; what was fetched ahead comes again."""
        self._ahead.clear()
        self._client.assign([TopicPartition(*place, read.position) for place, read in self._reads.items()])
        paused = [TopicPartition(*place) for place, read in self._reads.items() if read.paused]
        if paused:
            self._client.pause(paused)

    def _beginnings(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where partitions without a committed offset begin."""
        old = [place for place in places if place[1] < self._known[place[0]]]
        new = [place for place in places if place[1] >= self._known[place[0]]]
        return self._questions.first_offsets(old, self._start) | self._questions.starts(new) if places else {}

    def _assigned_to(self, client: Client, partitions: list[TopicPartition]) -> None:
        """Begin with partitions the group has given to this member."""
        if self._closed:
            return
        self._joining_until = 0.0
        places = [(at.topic, at.partition) for at in partitions]
        committed = self._committed(places)
        begun = self._checked(committed) | self._beginnings([place for place in places if place not in committed])
        for place, offset in begun.items():
            self._reads[place] = _Read(offset, committed.get(place))
        assigned = [TopicPartition(*place, offset) for place, offset in begun.items()]
        if self._incremental:
            client.incremental_assign(assigned)
        else:
            client.assign(assigned)

    def _checked(self, committed: Mapping[Place, int]) -> dict[Place, int]:
        """Where to go on: what is committed, or what is left of it."""
        starts, ends = self._questions.starts(committed), self._questions.ends(committed)
        found = {}
        for place, offset in committed.items():
            if starts[place] <= offset <= ends[place]:
                found[place] = offset
            else:
                gone = OutOfRange(f"{place[0]}-{place[1]}", offset, starts[place], ends[place])
                found[place] = self._instead(gone)
                _log.warning("%s Going on at %d.", gone, found[place])
        return found

    def _taken(self, client: Client, partitions: list[TopicPartition]) -> None:
        """Give up partitions that go to another member, which goes on where this one was."""
        if self._commit_seconds is not None and not self._closed:
            self._commit_quietly([(at.topic, at.partition) for at in partitions])
        self._forget(client, partitions)

    def _lost(self, client: Client, partitions: list[TopicPartition]) -> None:
        """Another member has these partitions already: nothing can be committed for them."""
        _log.warning(
            "this member was no longer in its group: %s went to others, and what was not committed is read again.",
            ", ".join(f"{at.topic}-{at.partition}" for at in partitions),
        )
        self._forget(client, partitions)

    def _forget(self, client: Client, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            self._reads.pop((at.topic, at.partition), None)
        self._ahead = deque(one for one in self._ahead if (one.topic, one.partition) in self._reads)
        if self._incremental:
            client.incremental_unassign(partitions)
        else:
            client.unassign()

    def assignment(self) -> list[Place]:
        """Return the (topic, partition) pairs this consumer reads now; a member is given its share while it polls."""
        return sorted(self._reads)

    def _own_read(self, topic: str, partition: int) -> _Read:
        self._check_open()
        read = self._reads.get((topic, partition))
        if read is None:
            mine = ", ".join(f"{name}-{number}" for name, number in self.assignment()) or "none"
            raise StreamsError(f"{topic}-{partition} is not among the partitions this consumer reads now: {mine}.")
        return read

    # Positions

    def position(self, topic: str, partition: int) -> int:
        """Return the offset that comes next in a partition."""
        return self._own_read(topic, partition).position

    def lag(self) -> dict[Place, int]:
        """Return how many offsets lie between the position and the end, for each partition this consumer reads."""
        self._check_open()
        ends = self._questions.ends(self._reads)
        return {
            place: max(0, ends[place] - max(read.position, read.end)) for place, read in sorted(self._reads.items())
        }

    def seek(self, topic: str, partition: int, to: Literal["earliest", "latest"] | int | datetime) -> None:
        """Go on reading a partition at its start, its end, an offset, or the first record not older than a time."""
        read, place = self._own_read(topic, partition), (topic, partition)
        read.position, read.end = self._questions.first_offsets([place], to)[place], -1
        self._seek(place)

    def seek_to_time(self, timestamp: int | datetime) -> None:
        """Go on, in every partition, at the first record that is not older than a time (epoch milliseconds)."""
        self._check_open()
        moment = timestamp if isinstance(timestamp, datetime) else datetime.fromtimestamp(timestamp / 1000).astimezone()
        for place, offset in self._questions.first_offsets(self._reads, moment).items():
            self._reads[place].position, self._reads[place].end = offset, -1
            self._seek(place)

    def pause(self, *places: Place) -> None:
        """Read nothing from these partitions, or from any if none is given, until `resume()`."""
        for place in places or tuple(self._reads):
            self._own_read(*place).paused = True
            if any((record.topic, record.partition) == place for record in self._ahead):
                self._seek(place)
            self._client.pause([TopicPartition(*place)])

    def resume(self, *places: Place) -> None:
        """Read from these partitions again, or from all if none is given."""
        for place in places or tuple(self._reads):
            self._own_read(*place).paused = False
            self._client.resume([TopicPartition(*place)])

    # Commits

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Remember for the group that all that was handed out so far, or up to these offsets, has been processed."""
        self._check_open()
        if not self._in_group:
            raise StreamsError("Only a group can commit: make the consumer with group=.")
        if offsets is None:
            offsets = {place: read.position for place, read in self._reads.items()}
        for place in offsets:
            self._own_read(*place)
        with self._questions.to("commit"):
            self._write_offsets(offsets)

    def _commit_quietly(self, places: Iterable[Place]) -> None:
        """Commit what was handed out; where that fails because the partition has moved, it is read again there."""
        if not self._in_group:
            return
        try:
            self._write_offsets({place: self._reads[place].position for place in places if place in self._reads})
        except KafkaException as error:
            _log.warning("the group could not commit (%s): what was read since is read again.", error.args[0].str())

    def _write_offsets(self, offsets: Mapping[Place, int]) -> None:
        moved = {place: offset for place, offset in offsets.items() if self._reads[place].committed != offset}
        if not moved:
            return
        asked = [TopicPartition(*place, offset) for place, offset in moved.items()]
        for at in self._client.commit(offsets=asked, asynchronous=False) or []:
            if at.error is not None:
                raise KafkaException(at.error)
        for place, offset in moved.items():
            self._reads[place].committed = offset

    def committed(self) -> dict[Place, int]:
        """Return the offsets that the group has committed in the topics of this consumer."""
        if not self._in_group:
            return {}
        counts = {topic: self._questions.partitions(topic) for topic in self.topics}
        return self._committed([(topic, number) for topic, count in counts.items() for number in range(count)])

    def _committed(self, places: Iterable[Place]) -> dict[Place, int]:
        asked = [TopicPartition(*place) for place in sorted(places)]
        if not asked:
            return {}

        def request() -> dict[Place, int]:
            found = self._client.committed(asked, timeout=ANSWER)
            for at in found:
                if at.error is not None:
                    raise KafkaException(at.error)
            return {(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

        return self._questions.ask("say what the group has committed", request)


def _record(place: Place, message: Message) -> ConsumerRecord:
    topic, partition = place
    offset, timestamp = message.offset() or 0, message.timestamp()[1]
    # The client's types allow for headers in a dictionary and as text, which it never hands over.
    headers: Any = tuple(message.headers() or ())
    return ConsumerRecord(topic, partition, offset, message.key(), message.value(), timestamp, headers)
