"""Queues: what becomes a head and when, and which head is next."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.dsl.serde import Str
from headwater.dsl.topology import Source
from headwater.streams.queues import Head, JavaQueue, PartitionGroup, RawRecord, RecordQueue

SOURCE = Source("source", ("in",), None, Str(), Str())


def record(time: int, offset: int = 0, value: bytes = b"v") -> RawRecord:
    return (b"k", value, time, (), offset)


def queue(topic: str = "in", seen: list[Any] | None = None) -> RecordQueue:
    """A queue that cannot read the value `bad` and remembers with which partition time it stamped a record."""

    def stamp(of: RecordQueue, raw: RawRecord) -> Head | None:
        if seen is not None:
            seen.append((raw[4], of.partition_time))
        return None if raw[1] == b"bad" else Head(raw[2], raw, raw[0], raw[1])

    return RecordQueue(topic, 0, SOURCE, stamp)


def group(idle_ms: int, *queues: RecordQueue) -> PartitionGroup:
    inputs = PartitionGroup(idle_ms)
    inputs.queues = {(queue.topic, queue.partition): queue for queue in queues}
    return inputs


def named(name: str, time: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, time=time)


def test_ties_come_out_as_from_java_util_priority_queue() -> None:
    # Traced by hand with siftUp and siftDown of the JDK; heapq gives a different order.
    heap: JavaQueue[Any] = JavaQueue()
    for name in "abcde":
        heap.offer(named(name, 7))
    assert [heap.poll().name for _ in range(5)] == ["a", "e", "d", "c", "b"]


def test_a_queue_put_back_after_its_turn_goes_before_its_equals_only_where_java_puts_it() -> None:
    heap: JavaQueue[Any] = JavaQueue()
    for item in (named("q", 0), named("a", 5), named("b", 5), named("c", 5)):
        heap.offer(item)
    turn = heap.poll()
    turn.time = 1
    heap.offer(turn)
    assert [item.name for item in heap.items] == ["q", "c", "b", "a"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5))))
def test_the_lowest_time_is_always_next(steps: list[tuple[bool, int]]) -> None:
    heap: JavaQueue[Any] = JavaQueue()
    held: list[int] = []
    for take, time in steps:
        if take and held:
            assert heap.poll().time == min(held)
            held.remove(min(held))
        else:
            heap.offer(named("", time))
            held.append(time)


def test_a_record_is_stamped_when_it_becomes_the_head_with_the_partition_time_of_then() -> None:
    seen: list[Any] = []
    one = queue(seen=seen)
    one.extend([record(10, 0), record(5, 1), record(20, 2)])
    assert seen == [(0, -1)]
    one.poll()
    one.poll()
    assert seen == [(0, -1), (1, 10), (2, 10)]
    assert one.partition_time == 10


def test_bad_records_are_passed_over_and_the_offset_with_them() -> None:
    one = queue()
    one.extend([record(1, 0), record(1, 1, b"bad"), record(1, 2, b"bad"), record(3, 3)])
    assert one.next_offset == 0
    assert one.poll().raw[4] == 0
    assert one.next_offset == 3


def test_when_only_bad_records_are_left_the_last_one_stands_for_its_offset() -> None:
    one = queue()
    one.extend([record(1, 0, b"bad"), record(1, 1, b"bad")])
    assert len(one) == 1
    head = one.poll()
    assert (head.bad, head.time, head.raw[4]) == (True, -1, 1)
    assert (one.next_offset, one.partition_time, len(one)) == (2, -1, 0)


def test_the_input_with_the_lowest_head_is_next() -> None:
    left, right = queue("left"), queue("right")
    inputs = group(0, left, right)
    inputs.feed(left, [record(20, 0), record(5, 1)])
    inputs.feed(right, [record(10, 0), record(30, 1)])
    # The left 5 comes after the left 20: only heads are compared.
    assert [inputs.poll()[1].time for _ in range(4)] == [10, 20, 5, 30]
    assert not inputs.ready(0)


def test_an_empty_input_holds_the_others_up_until_its_deadline() -> None:
    left, right = queue("left"), queue("right")
    inputs = group(100, left, right)
    inputs.feed(left, [record(1, 0), record(2, 1)])
    assert not inputs.ready(50)
    assert not inputs.ready(149)
    assert inputs.ready(150)
    # A record of the missed input ends the wait, and the next one starts anew.
    inputs.feed(right, [record(0, 0)])
    assert inputs.ready(151)
    inputs.poll()
    assert not inputs.ready(160)
    assert inputs.ready(260)


def test_nothing_is_waited_for_when_that_is_off_or_no_more_records_will_come() -> None:
    for idle_ms, draining in ((-1, False), (0, False), (100, True)):
        left, right = queue("left"), queue("right")
        inputs = group(idle_ms, left, right)
        inputs.draining = draining
        inputs.feed(left, [record(1, 0)])
        assert inputs.ready(0)


def test_an_input_with_more_to_come_holds_the_others_up_also_when_no_more_will_come_elsewhere() -> None:
    left, right = queue("left"), queue("right")
    inputs = group(0, left, right)
    inputs.draining = True
    right.caught_up = False
    inputs.feed(left, [record(1, 0)])
    assert not inputs.ready(0)
    right.caught_up = True
    assert inputs.ready(0)
