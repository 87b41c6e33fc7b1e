import pickle
from datetime import timedelta
from typing import Any

import pytest

from headwater.dsl.serde import Int64, Str
from headwater.dsl.stores import KeyValue, Session, StoreDescription, TimestampedKeyValue, Versioned, Window
from headwater.errors import TopologyError

hour = timedelta(hours=1)


@pytest.mark.parametrize(
    "store",
    [
        KeyValue("a", key=Str(), value=Int64(), memory=True, cached=False, changelog=False),
        TimestampedKeyValue(None),
        Versioned("a", retention=hour),
        Window("a", size=hour, retention=hour, timestamped=True, duplicates=True),
        Session("a", retention=hour),
    ],
)
def test_descriptions_are_picklable_values(store: StoreDescription) -> None:
    assert pickle.loads(pickle.dumps(store)) == store
    assert hash(pickle.loads(pickle.dumps(store))) == hash(store)


def test_kinds_are_told_apart() -> None:
    assert KeyValue("a") != TimestampedKeyValue("a")


def test_milliseconds() -> None:
    assert Versioned("a", retention=timedelta(0)).retention_ms == 0
    assert Window("a").size_ms is Window("a").retention_ms is Session("a").retention_ms is None
    window = Window("a", size=timedelta(milliseconds=5), retention=hour)
    assert (window.size_ms, window.retention_ms) == (5, 3_600_000)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: KeyValue("", key=Str), [r"KeyValue\(''\): name", r"KeyValue\(''\): key must be a serde.*Str\(\)"]),
        (lambda: KeyValue("a", value="json"), ["value must be a serde"]),
        (lambda: Versioned("a", retention=5), [r"Versioned\('a'\): retention must be a timedelta"]),
        (lambda: Versioned("a", retention=-hour), ["retention must not be negative"]),
        (lambda: Window("a", size=-hour, retention=5), ["size must not", "retention must be a timedelta"]),
        (lambda: Window("a", size=hour, retention=timedelta(1) / 48), ["retention must not be shorter"]),
        (lambda: Session(None, retention=-hour), [r"Session\(None\): retention"]),
    ],
)
def test_faults_come_together(make: Any, says: list[str]) -> None:
    with pytest.raises(TopologyError) as error:
        make()
    assert len(error.value.faults) == len(says)
    for pattern in says:
        assert error.match(pattern)


def test_a_versioned_store_needs_a_retention() -> None:
    with pytest.raises(TypeError, match="retention"):
        Versioned("a")  # type: ignore[call-arg]
