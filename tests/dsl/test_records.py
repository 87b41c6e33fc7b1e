import copy
import pickle

import pytest

from headwater.dsl.records import Record, Windowed


def test_records_are_immutable_values() -> None:
    record = Record("a", 1, 5, (("h", None),))
    assert record == Record("a", 1, 5, headers=(("h", None),))
    assert record != Record("a", 1, 5)
    assert hash(record) == hash(copy.copy(record))
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.value = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        record.other = 2  # type: ignore[attr-defined]


def test_replace_exchanges_only_what_is_given() -> None:
    record = Record("a", 1, 5, (("h", b"x"),))
    assert record.replace() == record
    assert record.replace(key=None) == Record(None, 1, 5, (("h", b"x"),))
    assert record.replace(value=None, timestamp=0, headers=()) == Record("a", None, 0)
    assert record == Record("a", 1, 5, (("h", b"x"),))


def test_a_windowed_key_is_a_hashable_value() -> None:
    windowed = Windowed("a", 0, 10)
    assert (windowed.key, windowed.start, windowed.end) == ("a", 0, 10)
    assert {windowed: 1}[Windowed("a", 0, 10)] == 1
    assert pickle.loads(pickle.dumps(windowed)) == windowed
    assert repr(windowed) == "Windowed(key='a', start=0, end=10)"
