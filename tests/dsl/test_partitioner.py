import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dsl.partitioner import murmur2, murmur3_128, partition_for


def signed(number: int, bits: int) -> int:
    number %= 2**bits
    return number - 2**bits if number >= 2 ** (bits - 1) else number


def slow_murmur2(data: bytes) -> int:
    """Byte by byte, as the algorithm is usually described."""

    def times_m(number: int) -> int:
        return number * 0x5BD1E995 % 2**32

    state = 0x9747B28C ^ len(data)
    position = 0
    while len(data) - position >= 4:
        word = sum(data[position + i] * 256**i for i in range(4))
        word = times_m(word)
        word = times_m(word ^ (word >> 24))
        state = times_m(state) ^ word
        position += 4
    rest = data[position:]
    if rest:
        for i, byte in enumerate(rest):
            state ^= byte * 256**i
        state = times_m(state)
    state = times_m(state ^ (state >> 13))
    return signed(state ^ (state >> 15), 32)


def slow_murmur3(data: bytes, seed: int = 104729) -> tuple[int, int]:
    """Murmur3 x64 128 on padded 16-byte blocks."""
    mask = 2**64 - 1
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotate(number: int, by: int) -> int:
        return ((number << by) | (number >> (64 - by))) & mask

    def scramble(number: int, first: int, by: int, second: int) -> int:
        return rotate(number * first & mask, by) * second & mask

    def finish(number: int) -> int:
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            number ^= number >> 33
            number = number * factor & mask
        return number ^ (number >> 33)

    a = b = seed
    for position in range(0, len(data), 16):
        block = data[position : position + 16]
        low = int.from_bytes(block[:8].ljust(8, b"\0"), "little")
        high = int.from_bytes(block[8:].ljust(8, b"\0"), "little")
        a ^= scramble(low, c1, 31, c2)
        if len(block) == 16:
            a = (rotate(a, 27) + b) * 5 + 0x52DCE729 & mask
        b ^= scramble(high, c2, 33, c1)
        if len(block) == 16:
            b = (rotate(b, 31) + a) * 5 + 0x38495AB5 & mask
    a, b = a ^ len(data), b ^ len(data)
    a = a + b & mask
    b = a + b & mask
    a, b = finish(a), finish(b)
    a = a + b & mask
    b = a + b & mask
    return signed(a, 64), signed(b, 64)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_client(data: bytes, digest: int) -> None:
    assert murmur2(data) == digest == slow_murmur2(data)


@given(st.binary(max_size=70))
def test_murmur2_equals_the_slow_way(data: bytes) -> None:
    assert murmur2(data) == slow_murmur2(data)


@given(st.binary(max_size=40), st.integers(1, 100))
def test_partition_is_the_hash_without_its_sign_bit(key: bytes, partitions: int) -> None:
    assert partition_for(key, partitions) == (slow_murmur2(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", (-7122613646888064702, -8341524471658347240)),
        (b"a", (3702349557448790408, -1601067453332442517)),
        (b"foobar", (-1926091222759195742, 2201308245896195406)),
        (b"12345678", (-2455429847547687578, 6788422440817327756)),
        (b"123456789", (6502726292040185600, -362312023417079833)),
        (b"0123456789abcde", (-4287173176971925127, -6858925735235585788)),
        (b"0123456789abcdef", (1904622552327088487, -2893518741649893711)),
        (b"0123456789abcdef0", (-8799181986501749066, -4860498730031731784)),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", (-4021448441249083453, 6290205124114177547)),
        (b"\xff\xff\xff\x80" + b"\xff" * 7, (422972123359765447, 1506274576072614933)),
    ],
)
def test_murmur3_is_that_of_kafka_streams(data: bytes, digest: tuple[int, int]) -> None:
    assert murmur3_128(data) == digest == slow_murmur3(data)


@given(st.binary(max_size=100))
def test_murmur3_equals_the_slow_way(data: bytes) -> None:
    assert murmur3_128(data) == slow_murmur3(data)
