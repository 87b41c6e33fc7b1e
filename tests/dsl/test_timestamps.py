import pickle
from typing import Any

import pytest

from headwater.dsl.timestamps import OnInvalid, SourceRecord
from headwater.errors import StreamsError, TopologyError


def source(timestamp: int, value: Any = None) -> SourceRecord:
    return SourceRecord("k", value, timestamp, (), "orders", 3, 42)


def from_value(record: SourceRecord, partition_time: int) -> int:
    return record.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [OnInvalid.fail, OnInvalid.skip, OnInvalid.partition_time])
def test_a_valid_timestamp_is_taken(make: Any) -> None:
    assert make()(source(5), 9) == 5
    assert make()(source(0), 9) == 0
    assert make(from_value)(source(-1, 7), -1) == 7


def test_fail_names_the_place_of_the_record() -> None:
    with pytest.raises(StreamsError, match=r"orders-3@42 has the invalid \(negative\) timestamp -1"):
        OnInvalid.fail()(source(-1), 100)
    with pytest.raises(StreamsError, match="-7"):
        OnInvalid.fail(from_value)(source(5, -7), 100)


def test_skip_leaves_the_negative_answer_to_the_task() -> None:
    assert OnInvalid.skip()(source(-1), 100) == -1
    assert OnInvalid.skip(from_value)(source(5, -7), 100) == -7


def test_partition_time_stands_in_once_it_is_known() -> None:
    assert OnInvalid.partition_time()(source(-1), 100) == 100
    assert OnInvalid.partition_time(from_value)(source(5, -7), 0) == 0
    with pytest.raises(StreamsError, match=r"orders-3@42 .* unknown"):
        OnInvalid.partition_time()(source(-1), -1)


def test_an_answer_that_is_no_number_names_the_function() -> None:
    with pytest.raises(StreamsError, match=r"orders-3@42.*test_timestamps:\d+ must give epoch milliseconds.*None"):
        OnInvalid.skip(from_value)(source(5), 100)


def test_extractors_are_picklable_values() -> None:
    extractor = OnInvalid.skip(from_value)
    assert pickle.loads(pickle.dumps(extractor)) == extractor
    assert pickle.loads(pickle.dumps(source(1))) == source(1)


def test_an_extractor_of_the_wrong_shape_is_a_build_fault() -> None:
    with pytest.raises(TopologyError, match=r"OnInvalid.partition_time: .*test_timestamps:\d+: .* 2 parameters"):
        OnInvalid.partition_time(lambda record: 5)  # type: ignore[arg-type, misc]
    with pytest.raises(TopologyError, match="a callable is needed"):
        OnInvalid.skip(5)  # type: ignore[arg-type]
