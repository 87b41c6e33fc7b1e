"""The byte formats of internal topics: those of Kafka Streams, written out by hand, and that nothing gets lost."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dsl.internal_serdes import (
    ChangeSerde,
    Instruction,
    Response,
    ResponseSerde,
    Subscription,
    SubscriptionSerde,
)
from headwater.dsl.serde import Bytes, Int64, Serde, Str
from headwater.errors import SerdeError

CHANGE = ChangeSerde(Bytes())
SUBSCRIPTION = SubscriptionSerde(Bytes())
RESPONSE = ResponseSerde(Bytes())

LONGS = st.integers(-(2**63), 2**63 - 1)
HASHES = st.none() | st.tuples(LONGS, LONGS)
INSTRUCTIONS = st.sampled_from(Instruction)


def test_a_change_is_marked_by_its_last_byte() -> None:
    serde = ChangeSerde(Int64())
    one, two = Int64().encode(1), Int64().encode(2)
    assert serde.encode((1, None)) == one + b"\x01"
    assert serde.encode((None, 2)) == two + b"\x00"
    assert serde.encode((1, 2)) == b"\x10" + one + two + b"\x02"


def test_the_length_of_the_new_value_is_a_zigzag_varint() -> None:
    assert ChangeSerde(Bytes()).encode((b"n" * 64, b"")) == b"\x80\x01" + b"n" * 64 + b"\x02"
    assert ChangeSerde(Bytes()).encode((b"n" * 8192, b"o"))[:3] == b"\x80\x80\x01"


@given(st.none() | st.binary(), st.none() | st.binary())
def test_changes_come_back(new: bytes | None, old: bytes | None) -> None:
    if new is None and old is None:
        with pytest.raises(SerdeError, match="without a new and an old value"):
            CHANGE.encode((new, old))
    else:
        assert CHANGE.decode(CHANGE.encode((new, old))) == (new, old)


def test_a_change_with_a_latest_flag_is_read_too() -> None:
    assert CHANGE.decode(b"old\x01\x03") == (None, b"old")
    assert CHANGE.decode(b"new\x00\x04") == (b"new", None)
    assert CHANGE.decode(b"\x06newold\x01\x05") == (b"new", b"old")


@pytest.mark.parametrize(
    "data", [b"", b"x\x06", b"\x03", b"\x01ab\x02", b"\x7fab\x02", b"\xff\xff\xff\xff\xff\x02", b"\x02"]
)
def test_malformed_changes_are_told(data: bytes) -> None:
    with pytest.raises(SerdeError, match="malformed"):
        CHANGE.decode(data)


def test_a_subscription_has_version_instruction_hash_key_and_partition() -> None:
    subscription = Subscription((1, -1), Instruction.ANSWER_ALWAYS, "pk", primary_partition=7)
    data = SubscriptionSerde(Str()).encode(subscription)
    assert data == b"\x01\x02" + bytes(7) + b"\x01" + b"\xff" * 8 + b"pk" + b"\x00\x00\x00\x07"
    assert SubscriptionSerde(Str()).decode(data) == subscription


def test_a_subscription_of_version_0_has_no_partition() -> None:
    subscription = Subscription(None, Instruction.DELETE, b"pk", version=0)
    assert SUBSCRIPTION.encode(subscription) == b"\x80\x00pk"
    assert SUBSCRIPTION.decode(b"\x80\x00pk") == subscription


def test_a_subscription_without_its_partition_is_told() -> None:
    with pytest.raises(SerdeError, match="without its partition"):
        SUBSCRIPTION.encode(Subscription(None, Instruction.DELETE, b"pk"))


@given(HASHES, INSTRUCTIONS, st.binary(), st.integers(0, 2**31 - 1))
def test_subscriptions_come_back(
    hashed: tuple[int, int] | None, instruction: Instruction, key: bytes, partition: int
) -> None:
    subscription = Subscription(hashed, instruction, key, primary_partition=partition)
    assert SUBSCRIPTION.decode(SUBSCRIPTION.encode(subscription)) == subscription


@pytest.mark.parametrize(
    "data",
    [b"", b"\x81", b"\x81\x04key\x00\x00\x00\x00", b"\x82\x01key\x00\x00\x00\x00", b"\x01\x01short", b"\x81\x01\x00"],
)
def test_malformed_subscriptions_are_told(data: bytes) -> None:
    with pytest.raises(SerdeError, match="malformed"):
        SUBSCRIPTION.decode(data)


def test_a_response_does_not_carry_its_partition() -> None:
    response = Response((0, 1), "value", primary_partition=3)
    data = ResponseSerde(Str()).encode(response)
    assert data == bytes(16) + b"\x01value"
    assert ResponseSerde(Str()).decode(data) == response._replace(primary_partition=None)


@given(HASHES, st.none() | st.binary())
def test_responses_come_back_and_an_empty_value_as_none(hashed: tuple[int, int] | None, value: bytes | None) -> None:
    assert RESPONSE.decode(RESPONSE.encode(Response(hashed, value))) == Response(hashed, value or None)


@pytest.mark.parametrize("data", [b"", b"\x00short", b"\x81v"])
def test_malformed_responses_are_told(data: bytes) -> None:
    with pytest.raises(SerdeError, match="malformed"):
        RESPONSE.decode(data)


@pytest.mark.parametrize("serde", [ChangeSerde(Str()), SubscriptionSerde(Str()), ResponseSerde(Str())])
def test_internal_serdes_compare_hash_and_pickle(serde: Serde) -> None:
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert len({serde, type(serde)(Str()), type(serde)(Int64())}) == 2  # type: ignore[call-arg]
