"""The note with a committed offset: text that Kafka Streams 4.3.1's TopicPartitionMetadata made, and what it reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.kafka.offset_notes import NO_TIME, decode, encode, note_of

LONGS = st.integers(-(2**63), 2**63 - 1)

MADE_BY_JAVA = [
    ("AgAAAYvP5Wh7", 1_700_000_000_123, {}),
    ("Av//////////", -1, {}),
    ("AgAAAAAAAABNAAAAAQAAAAZjb3VudHMAAAAAAAAwOQ==", 77, {"counts": 12_345}),
    ("AgAAAAAAAABOAAAAAgAAAAZjb3VudHMAAAAAAAAwOQAAAAdaw6RobGVy//////////4=", 78, {"counts": 12_345, "Zähler": -2}),
]


@pytest.mark.parametrize(("note", "time", "numbers"), MADE_BY_JAVA)
def test_notes_are_those_that_java_makes(note, time, numbers):
    assert encode(time, numbers) == note
    assert decode(note) == (time, numbers)


@given(LONGS, st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), LONGS))
def test_what_was_encoded_comes_back(time, numbers):
    assert decode(encode(time, numbers)) == (time, numbers)


@pytest.mark.parametrize(
    ("note", "time", "numbers"),
    [
        pytest.param("", NO_TIME, {}, id="no note"),
        pytest.param("AQAAAYvP5Wh7", 1_700_000_000_123, {}, id="magic 1"),
        pytest.param("AQ==", NO_TIME, {}, id="magic 1, cut"),
        pytest.param("AwAAAYvP5Wh7", NO_TIME, {}, id="magic 3"),
        pytest.param("%%%", NO_TIME, {}, id="not base64"),
        pytest.param("von Hand, äöü", NO_TIME, {}, id="not ASCII"),
        pytest.param("AgAAAAAAAABNAAAAAgAA", 77, {}, id="numbers cut"),
        pytest.param("AgAAAAAAAABNAAAAAg", 77, {}, id="numbers missing, and the padding"),
        pytest.param("AgAAAYvP5Wh7/////w==", 1_700_000_000_123, {}, id="-1 numbers"),
        pytest.param("AgAAAYvP5Wh7AAAAAf////8=", 1_700_000_000_123, {}, id="a name of -1 bytes"),
        pytest.param(
            "AgAAAYvP5Wh7AAAAAQAAAAZjb3VudHMAAAAAAAAwOQAAAA==", 1_700_000_000_123, {"counts": 12_345}, id="more behind"
        ),
    ],
)
def test_what_java_reads_from_notes_of_others(note, time, numbers):
    assert decode(note) == (time, numbers)


@pytest.mark.parametrize(("note", "time", "numbers"), MADE_BY_JAVA)
@pytest.mark.parametrize("more", ["\x04", "h\x7f", "hh\x01", "A", "AAAA", "AgAAAaHo20jw", "%", "ÿ"])
def test_what_librdkafka_leaves_behind_a_note_changes_nothing(note, time, numbers, more):
    assert decode(note + more) == (time, numbers)


def test_a_note_with_something_behind_it_that_is_no_text_is_read():
    class Place:
        @property
        def metadata(self):
            return b"AgAAAAAAAAEC\x80A".decode()

    assert decode(note_of(Place())) == (258, {})
    Place.metadata = None
    assert note_of(Place()) == ""


@given(st.text())
def test_no_text_is_an_error(note):
    time, numbers = decode(note)
    assert isinstance(time, int)
    assert isinstance(numbers, dict)
