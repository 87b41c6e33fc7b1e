"""The bytes of a batch: what goes in comes out, and no flipped bit does."""

import struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StreamsError
from headwater.state.log import NewerFormat
from headwater.state.log.batch import CODECS, HEADER_BYTES, BadBatch, Batch, decode, encode_body, frame, parse

INT64 = st.integers(-(2**63), 2**63 - 1)
MAYBE = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.tuples(MAYBE, MAYBE, INT64, st.lists(st.tuples(st.text(max_size=5), MAYBE), max_size=3).map(tuple)),
    min_size=1,
    max_size=30,
)


def parsed(data: bytes, at: int = 0) -> Batch:
    batch = parse(memoryview(data), at)
    assert isinstance(batch, Batch)
    return batch


@settings(deadline=None)
@given(RECORDS, st.sampled_from(CODECS), st.integers(0, 2**62), st.text(max_size=20), st.integers(0, 2**62), st.data())
def test_what_goes_in_comes_out(records, codec, base, producer, sequence, data) -> None:
    gaps = data.draw(st.none() | st.lists(st.integers(1, 5), min_size=len(records), max_size=len(records)))
    offsets = list(range(base, base + len(records)))
    if gaps:
        offsets = [base + sum(gaps[:number]) for number in range(len(records))]
    body = encode_body(records, codec, offsets if gaps else None)
    whole = b"before" + frame(body, base, offsets[-1], producer, sequence, 7) + b"behind"
    batch = parsed(whole, 6)
    assert decode(batch) == [(*record, offset) for record, offset in zip(records, offsets, strict=True)]
    assert (batch.size, batch.base, batch.last, batch.records) == (len(whole) - 12, base, offsets[-1], len(records))
    assert (batch.min_timestamp, batch.max_timestamp) == (min(r[2] for r in records), max(r[2] for r in records))
    assert (batch.producer, batch.sequence, batch.horizon) == (producer, sequence, 7)


@pytest.mark.parametrize("codec", CODECS)
def test_large_bodies_are_compressed_and_small_ones_are_not(codec: str) -> None:
    large = encode_body([(b"k", b"v" * 10_000, 1, ())], codec)
    assert CODECS[large.codec] == codec
    assert (len(large.data) < 1_000) == (codec != "none")
    assert encode_body([(b"k", b"v", 1, ())], codec).codec == 0


@settings(max_examples=20, deadline=None)
@given(RECORDS, st.sampled_from(CODECS))
def test_every_prefix_is_incomplete(records, codec) -> None:
    whole = frame(encode_body(records, codec), 5, 4 + len(records), "p", 3)
    for length in range(len(whole)):
        needed = parse(memoryview(whole[:length]), 0)
        assert needed == (HEADER_BYTES if length < HEADER_BYTES else len(whole))


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_is_found(codec: str) -> None:
    records = [(b"key-%d" % n, b"value " * 20, 1_700_000_000_000 + n, (("h", b"x"),)) for n in range(10)]
    whole = bytearray(frame(encode_body(records, codec), 5, 14, "producer", 3))
    for bit in range(len(whole) * 8):
        whole[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadBatch):
            parse(memoryview(whole), 0)
        whole[bit // 8] ^= 1 << bit % 8
    assert len(decode(parsed(whole))) == 10


def test_a_version_from_the_future_is_named_as_such() -> None:
    whole = bytearray(frame(encode_body([(b"k", b"v", 1, ())], "none"), 0, 0))
    whole[4] = 9
    struct.pack_into("<I", whole, 72, crc32(whole[:72]))
    with pytest.raises(NewerFormat, match="format version 9; this Headwater reads up to 2"):
        parse(memoryview(whole), 0)


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (("k", b"v", 1, ()), "key or a value that is not bytes"),
        ((b"k", 5, 1, ()), "key or a value that is not bytes"),
        ((b"k", bytearray(b"v"), 1, ()), "key or a value that is not bytes"),
        ((b"k", b"v", 1.5, ()), "timestamp"),
        ((b"k", b"v", True, ()), "timestamp"),
        ((b"k", b"v", 2**63, ()), "timestamp"),
        ((b"k", b"v", 1, (("h", "text"),)), "headers"),
        ((b"k", b"v", 1, (5,)), "headers"),
        ((b"k", b"v", 1), "not .key, value, timestamp, headers."),
        (None, "not .key, value, timestamp, headers."),
    ],
)
def test_a_record_of_the_wrong_form_is_refused_by_its_number(record, fault: str) -> None:
    with pytest.raises(StreamsError, match=f"Record 1 .*{fault}"):
        encode_body([(b"k", b"v", 1, ()), record], "lz4")
    with pytest.raises(StreamsError, match=f"Record 0 .*{fault}"):
        encode_body([record], "lz4")


def test_a_batch_has_a_record() -> None:
    with pytest.raises(StreamsError, match="nothing to append"):
        encode_body([], "lz4")
