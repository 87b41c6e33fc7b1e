"""Random expressions over a fixed record type, and random records for them: what the tests of the two compilers share.
Every expression is typed, so that nearly all of them are native; values sit where compilers differ."""

import math
import random
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, settings

from headwater import Expression, coalesce, col, concat, lit, record_key, record_timestamp, when

# One example is hundreds of cases in one job; a failure names them, and shrinking would take an hour.
LARGE_EXAMPLES = settings(
    deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGS = [0, 1, -1, 2, 3, -7, 10, 1000, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-320, 1e16, 2.0**53, 2.0**63, -(2.0**63), 1e308, -1e308]
DOUBLES += [math.inf, -math.inf, math.nan]
TEXTS = ["", " ", "a", "A", "abc", "ABC", "straße", "İstanbul", "ΑΣ", "ΣΑΣ", "ﬁn", "e\u0301", "é", "𝄞😀", "😀a"]
TEXTS += ["日本語", "\t x ", "%_\\", "true", "False", " TRUE "]
TEXTS += ["0", "-0", "+7", " 42 ", "1e3", "1.5", ".5", "5.", "1d"]
TEXTS += ["0x10", "NaN", "Infinity", "1_000", "١٢", "9223372036854775807", "9223372036854775808"]
TEXTS += ["1e400", "-9223372036854775808"]
TEXTS += ["99999999999999999999", "\n1", "1\n", "2024-02-29", "2023-02-29", "2024-02-29T12:34:56Z", "2024-02-29 12:34"]
TEXTS += ["2024-02-29T12:34:56.1234-07:30", "0000-01-01", "0001-01-01T00:00:00+01:00"]
TEXTS += ["9999-12-31T23:59:59.999999-00:01", "1582-10-10T00:00:00Z", "24:00", "2024-06-30T23:59:60Z"]
PATTERNS = ["%", "_", "a%", "%c", "%b%", "a_c", "\\%%", "%\\_%", "", "😀_", "%.%", "(%", "%\\\\"]
MOMENTS = [-62135596800_000000, 253402300799_999999, 0, -1, 1, -86_400_000_000, 951782400_000000, 1709210096_123456]
MOMENTS += [-12219292800_000000]
PARTS = ["year", "month", "day", "hour", "minute", "second"]
UNITS = ["year", "month", "week", "day", "hour", "minute", "second"]


@dataclass
class Inner:
    """A struct inside the record's value."""

    name: str | None = None
    n: int | None = None


@dataclass
class Row:
    """The value of the records."""

    a: int | None = None
    b: int | None = None
    x: float | None = None
    y: float | None = None
    s: str | None = None
    t: str | None = None
    p: bool | None = None
    q: bool | None = None
    d: datetime | None = None
    e: datetime | None = None
    u: Inner | None = None
    l: list[int] | None = field(default_factory=list)  # noqa: E741 - one letter each
    m: dict[str, float] | None = field(default_factory=dict)


def moment(rng: random.Random) -> datetime:
    """An instant, often one at an edge."""
    micros = rng.choice(MOMENTS) if rng.random() < 0.5 else rng.randint(-62135596800_000000, 253402300799_999999)
    return EPOCH + timedelta(microseconds=micros)


def text(rng: random.Random) -> str:
    """A string, often one at an edge."""
    if rng.random() < 0.7:
        return rng.choice(TEXTS)
    return "".join(rng.choice(string.printable + "äßΣσςİıŒ😀𐐀") for _ in range(rng.randint(0, 6)))


def long(rng: random.Random) -> int:
    """A 64-bit integer, often one at an edge."""
    return rng.choice(LONGS) if rng.random() < 0.6 else rng.choice([rng.randint(-20, 20), rng.getrandbits(64) - 2**63])


def double(rng: random.Random) -> float:
    """A double, often one at an edge."""
    return rng.choice(DOUBLES) if rng.random() < 0.6 else rng.uniform(-100, 100)


def maybe(rng: random.Random, make: Callable[[random.Random], Any]) -> Any:
    """A value, or often none."""
    return None if rng.random() < 0.2 else make(rng)


def row(rng: random.Random) -> Row:
    """A record's value."""
    return Row(
        maybe(rng, long),
        maybe(rng, long),
        maybe(rng, double),
        maybe(rng, double),
        maybe(rng, text),
        maybe(rng, text),
        maybe(rng, lambda rng: rng.random() < 0.5),
        maybe(rng, lambda rng: rng.random() < 0.5),
        maybe(rng, moment),
        maybe(rng, moment),
        maybe(rng, lambda rng: Inner(maybe(rng, text), maybe(rng, long))),
        maybe(rng, lambda rng: [maybe(rng, long) for _ in range(rng.randint(0, 3))]),
        maybe(rng, lambda rng: {rng.choice("kwz"): maybe(rng, double) for _ in range(2)}),
    )


class Expressions:
    """A source of random expressions of each type."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def any(self, depth: int = 3) -> Expression:
        """An expression of any type."""
        make = self.rng.choice([self.long, self.double, self.text, self.boolean, self.boolean, self.moment])
        return make(depth)

    def _leaf(self, fields: list[Expression], make: Callable[[random.Random], Any]) -> Expression:
        roll = self.rng.random()
        if roll < 0.7:
            return self.rng.choice(fields)
        return lit(None) if roll < 0.75 else lit(make(self.rng))

    def _shared(self, make: Callable[[int], Expression], depth: int) -> Expression:
        rng = self.rng
        if rng.random() < 0.5:
            return coalesce(*(make(depth - 1) for _ in range(rng.randint(1, 3))))
        chosen = when(self.boolean(depth - 1), make(depth - 1))
        if rng.random() < 0.5:
            chosen = chosen.when(self.boolean(depth - 1), make(depth - 1))
        return chosen.otherwise(make(depth - 1)) if rng.random() < 0.7 else chosen

    def long(self, depth: int) -> Expression:
        """An expression that gives longs."""
        rng = self.rng
        if depth <= 0:
            fields = [col("a"), col("b"), col("u.n"), col("l")[0], col("l")[-1], col("l")[2], record_timestamp()]
            return self._leaf(fields, long)
        a, b = self.long(depth - 1), self.long(depth - 1)
        return rng.choice(
            [
                lambda: a + b,
                lambda: a - b,
                lambda: a * b,
                lambda: a % b,
                lambda: -a,
                lambda: a.abs(),
                lambda: self.text(depth - 1).length(),
                lambda: self.double(depth - 1).cast("long"),
                lambda: self.text(depth - 1).cast("long"),
                lambda: self.boolean(depth - 1).cast("long"),
                lambda: self.moment(depth - 1).cast("long"),
                lambda: getattr(self.moment(depth - 1), rng.choice(PARTS))(),
                lambda: self._shared(self.long, depth),
            ]
        )()

    def double(self, depth: int) -> Expression:
        """An expression that gives doubles."""
        rng = self.rng
        if depth <= 0:
            return self._leaf([col("x"), col("y"), col("m.k"), col("m")["w"]], double)
        number = self.long if rng.random() < 0.3 else self.double
        a, b = self.double(depth - 1), number(depth - 1)
        if rng.random() < 0.5:
            a, b = b, a
        return rng.choice(
            [
                lambda: self.double(depth - 1) + b,
                lambda: a - self.double(depth - 1),
                lambda: self.double(depth - 1) * b,
                lambda: a / b,
                lambda: self.long(depth - 1) / self.long(depth - 1),
                lambda: a % self.double(depth - 1),
                lambda: -self.double(depth - 1),
                lambda: self.double(depth - 1).abs(),
                lambda: self.long(depth - 1).cast("double"),
                lambda: self.text(depth - 1).cast("double"),
                lambda: self._shared(self.double, depth),
            ]
        )()

    def text(self, depth: int) -> Expression:
        """An expression that gives strings."""
        rng = self.rng
        if depth <= 0:
            return self._leaf([col("s"), col("t"), col("u.name"), record_key()], text)
        s = self.text(depth - 1)
        return rng.choice(
            [
                lambda: s.upper(),
                lambda: s.lower(),
                lambda: s.trim(),
                lambda: s.substr(rng.randint(-4, 4), rng.randint(-1, 4)),
                lambda: s.replace(self.text(0), self.text(0)),
                lambda: concat(s, self.text(depth - 1)),
                lambda: self.long(depth - 1).cast("string"),
                lambda: self.boolean(depth - 1).cast("string"),
                lambda: self.moment(depth - 1).cast("string"),
                lambda: self._shared(self.text, depth),
            ]
        )()

    def boolean(self, depth: int) -> Expression:
        """An expression that gives booleans."""
        rng = self.rng
        if depth <= 0:
            return self._leaf([col("p"), col("q")], lambda rng: rng.random() < 0.5)
        kind = rng.choice([self.long, self.double, self.text, self.boolean, self.moment])
        other = rng.choice([self.long, self.double]) if kind in (self.long, self.double) else kind
        a, b = kind(depth - 1), other(depth - 1)
        return rng.choice(
            [
                lambda: a == b,
                lambda: a != b,
                lambda: a < b,
                lambda: a <= b,
                lambda: a > b,
                lambda: a >= b,
                lambda: a.between(other(0), other(0)),
                lambda: self.long(depth - 1).isin(*rng.sample(LONGS, rng.choice([1, 3, 12]))),
                lambda: self.double(depth - 1).isin(*rng.sample([*DOUBLES, None, 7], rng.choice([1, 3, 12]))),
                lambda: self.text(depth - 1).isin(rng.sample(TEXTS, rng.choice([1, 12]))),
                lambda: self.boolean(depth - 1) & self.boolean(depth - 1),
                lambda: self.boolean(depth - 1) | self.boolean(depth - 1),
                lambda: ~self.boolean(depth - 1),
                lambda: a.is_null(),
                lambda: a.is_not_null(),
                lambda: self.double(depth - 1).is_nan(),
                lambda: self.text(depth - 1).contains(self.text(0)),
                lambda: self.text(depth - 1).startswith(self.text(0)),
                lambda: self.text(depth - 1).endswith(self.text(0)),
                lambda: self.text(depth - 1).like(rng.choice(PATTERNS)),
                lambda: self.long(depth - 1).cast("boolean"),
                lambda: self.double(depth - 1).cast("boolean"),
                lambda: self.text(depth - 1).cast("boolean"),
                lambda: self._shared(self.boolean, depth),
            ]
        )()

    def moment(self, depth: int) -> Expression:
        """An expression that gives timestamps."""
        rng = self.rng
        if depth <= 0:
            return self._leaf([col("d"), col("e")], moment)
        return rng.choice(
            [
                lambda: self.moment(depth - 1).trunc(rng.choice(UNITS)),
                lambda: self.moment(depth - 1).trunc(rng.choice(UNITS)),
                lambda: self.long(depth - 1).cast("timestamp"),
                lambda: self.text(depth - 1).cast("timestamp"),
                lambda: self._shared(self.moment, depth),
            ]
        )()
