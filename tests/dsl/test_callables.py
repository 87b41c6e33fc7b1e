import functools
import operator
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from headwater import col
from headwater.dsl.callables import check, is_expression, keyed, place
from headwater.dsl.expression_steps import as_function


class Adder:
    def __call__(self, value: int) -> int:
        return value + 1

    def plus(self, key: str, value: int) -> int:
        return value + 2

    @staticmethod
    def twice(value: int) -> int:
        return value * 2


@dataclass
class Pair:
    a: int
    b: int = 0


class Point(msgspec.Struct):
    x: int
    y: int


EXPRESSION = as_function(col("amount") > 10)


def one(value: Any) -> Any:
    return value


def two(key: Any, value: Any) -> Any:
    return value


@functools.lru_cache
def cached_two(key: Any, value: Any) -> Any:
    return value


@functools.wraps(two)
def wrapped_two(*args: Any) -> Any:
    return two(*args)


async def waiting(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (one, False),
        (two, True),
        (cached_two, True),
        (wrapped_two, True),
        (lambda value, extra=1: value, False),
        (lambda value, extra=1, more=2: value, False),
        (lambda key, value, extra=1: value, True),
        (lambda value, *, flag=True: value, False),
        (lambda value, **options: value, False),
        (lambda value=1: value, False),
        (functools.partial(two, "key"), False),
        (functools.partial(lambda a, b, c: a, c=1), True),
        (Adder(), False),
        (Adder().plus, True),
        (Adder.plus, ValueError),
        (Adder.twice, False),
        (Pair, False),
        (Point, True),
        (int, False),
        (str, False),
        (dict, False),
        (len, False),
        (max, False),
        (str.upper, False),
        (operator.add, True),
        (operator.itemgetter("a"), False),
        (operator.attrgetter("a"), False),
        (operator.methodcaller("upper"), False),
        (functools.partial(operator.itemgetter("a")), False),
        (EXPRESSION, True),
        (col("amount"), ValueError),
        (lambda: 1, ValueError),
        (lambda a, b, c: 1, ValueError),
        (lambda *args: 1, ValueError),
        (lambda key, value, *rest: 1, ValueError),
        (print, ValueError),
        (Mock(), ValueError),
        (lambda value, *, flag: value, ValueError),
        (waiting, ValueError),
        (5, ValueError),
        (None, ValueError),
        ("amount", ValueError),
    ],
)
def test_the_keyed_form_is_taken_when_exactly_one_more_is_required(f: Any, expected: Any) -> None:
    if expected is ValueError:
        with pytest.raises(ValueError):
            keyed(f)
    else:
        assert keyed(f) is expected


def test_joiners_have_two_values() -> None:
    assert not keyed(operator.add, 2)
    assert not keyed(lambda left, right, sep="-": left, 2)
    assert keyed(lambda key, left, right: left, 2)
    with pytest.raises(ValueError, match="must take 2 parameters, or 3 with the key first, but takes"):
        keyed(one, 2)


@pytest.mark.parametrize(
    ("f", "positional", "fits"),
    [
        (two, 2, True),
        (one, 2, False),
        (lambda a, b, c=1: a, 2, True),
        (lambda a, b, c: a, 2, False),
        (lambda *args: 1, 2, True),
        (print, 2, True),
        (max, 3, True),
        (lambda: 1, 0, True),
        (Adder, 0, True),
        (Pair, 0, False),
        (list, 0, True),
        (one, 0, False),
        (EXPRESSION, 2, True),
        (EXPRESSION, 1, False),
        (col("amount"), 2, False),
        (waiting, 1, False),
        (lambda a, b, *, c: a, 2, False),
        (None, 2, False),
    ],
)
def test_check(f: Any, positional: int, fits: bool) -> None:
    if fits:
        check(f, positional)
    else:
        with pytest.raises(ValueError):
            check(f, positional)


def test_faults_name_the_place_and_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=rf"{__name__}:\d+: the callable must take 1 parameter, or 2 with .* \(a, b, c\)"
    ):
        keyed(lambda a, b, c: a)
    with pytest.raises(ValueError, match=r"\(\*args\), so it is unclear whether it wants the key"):
        keyed(lambda *args: args)
    with pytest.raises(ValueError, match="must take no parameter, but takes"):
        check(lambda a: a, 0)
    with pytest.raises(ValueError, match="requires the keyword flag="):
        check(lambda a, *, flag: a, 1)
    with pytest.raises(ValueError, match="a callable is needed, but this is str 'amount'"):
        check("amount", 1)
    with pytest.raises(ValueError, match="async"):
        keyed(waiting)


def test_place_is_module_and_line() -> None:
    def line(f: Any) -> str:
        return f"{__name__}:{f.__code__.co_firstlineno}"

    assert place(one) == line(one)
    small = lambda: 1  # noqa: E731 -- a lambda's own line is what is wanted here
    assert place(small) == f"{__name__}:{test_place_is_module_and_line.__code__.co_firstlineno + 5}"
    assert place(functools.partial(two, 1)) == place(wrapped_two) == line(two)
    assert place(cached_two) == line(cached_two.__wrapped__)
    assert place(Adder()) == place(Adder) == line(Adder.__call__)
    assert place(Adder().plus) == place(Adder.plus) == line(Adder.plus)
    assert place(Pair) == f"{__name__}.Pair"
    assert place(len) == "builtins.len"
    assert place(int) == "builtins.int"
    assert place(operator.itemgetter(1)) == "operator.itemgetter"
    assert place(5) == "builtins.int"


def test_an_expression_is_known_by_its_attribute() -> None:
    assert is_expression(EXPRESSION)
    assert place(EXPRESSION) == "(col('amount') > 10)"
    with pytest.raises(ValueError, match=r"a function is needed here, but this is the expression col\('amount'\)"):
        check(col("amount"), 2)
    assert not is_expression(one)
    assert not is_expression(Mock())
