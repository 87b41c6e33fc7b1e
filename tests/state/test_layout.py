"""Row keys sort as their parts do, and no key's rows reach into another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import StreamsError
from headwater.state.layout import Raw, escape, key_then_time, pack_time, unescape, unpack_time

KEYS = st.one_of(
    st.binary(max_size=6), st.lists(st.sampled_from([b"\x00", b"\xff", b"\x01", b"a"]), max_size=5).map(b"".join)
)
TIMES = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))


@given(KEYS)
def test_a_key_comes_back(key):
    assert unescape(escape(key)) == key


@given(KEYS, KEYS, st.binary(max_size=4), st.binary(max_size=4))
def test_escaped_keys_sort_as_the_keys_whatever_follows(one, other, after_one, after_other):
    if one != other:
        assert (escape(one) + after_one < escape(other) + after_other) == (one < other)
        assert not (escape(one) + after_one).startswith(escape(other))


@given(KEYS, KEYS, TIMES, TIMES)
def test_key_then_time_and_time_then_key_sort_as_pairs(one, other, t1, t2):
    assert (escape(one) + pack_time(t1) < escape(other) + pack_time(t2)) == ((one, t1) < (other, t2))
    assert (pack_time(t1) + escape(one) < pack_time(t2) + escape(other)) == ((t1, one) < (t2, other))


@given(KEYS, KEYS, TIMES, TIMES, TIMES)
def test_a_range_of_one_keys_times_holds_no_other_key(key, other, lo, hi, at):
    inside = escape(key) + pack_time(lo) <= escape(other) + pack_time(at) < escape(key) + pack_time(hi + 1)
    assert inside == (other == key and lo <= at <= hi)


@given(st.binary(max_size=4), TIMES)
def test_a_time_comes_back(before, time):
    assert unpack_time(before + pack_time(time), len(before)) == time


@given(KEYS, TIMES)
def test_key_then_time_is_one_after_the_other(key, time):
    assert key_then_time(key, time) == escape(key) + pack_time(time)


@pytest.mark.parametrize("time", [-1, 2**64, 1.5, None])
def test_what_is_no_time_is_refused_by_name(time):
    with pytest.raises(StreamsError, match=repr(time)):
        pack_time(time)
    with pytest.raises(StreamsError, match=repr(time)):
        key_then_time(b"k", time)


def test_raw_rows_are_themselves():
    raw = Raw()
    assert raw.decode(raw.encode(b"x")) == b"x"
    assert raw.stable(b"x")
    assert not raw.stable(bytearray(b"x"))
