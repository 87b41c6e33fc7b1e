"""A burst is seen wherever it begins, and also when its payments arrive late."""

from collections.abc import Iterator

import pytest

from examples.payments import topology
from headwater import Record, TopologyTestDriver

MINUTE = 60_000


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(topology) as driver:
        yield driver


def pay(
    driver: TopologyTestDriver, minute: float, cents: int = 1000, country: str = "Italy", card: str = "c"
) -> list[Record]:
    """The alerts that a payment leads to."""
    driver.input("payments").send(card, {"cents": cents, "country": country}, at=int(minute * MINUTE))
    return driver.output("fraud-alerts").read_all()


@pytest.mark.parametrize("start", [20, 28.5])
def test_the_sixth_payment_in_ten_minutes_is_told_wherever_they_begin(driver: TopologyTestDriver, start: float) -> None:
    for i in range(5):
        assert pay(driver, start + i) == []
    (alert,) = pay(driver, start + 10)
    assert alert.key == "c"
    assert alert.value == {
        "rules": ["many payments"],
        "payments": 6,
        "cents": 6000,
        "countries": ["Italy"],
        "from": start * MINUTE,
        "to": (start + 10) * MINUTE,
    }


def test_as_many_in_a_little_more_than_ten_minutes_are_none(driver: TopologyTestDriver) -> None:
    for i in range(5):
        pay(driver, 20 + i)
    assert pay(driver, 30.1) == []


def test_much_money_and_two_countries_are_told_together(driver: TopologyTestDriver) -> None:
    assert pay(driver, 0, cents=150_000) == []
    (alert,) = pay(driver, 9, cents=60_000, country="Peru")
    assert alert.value["rules"] == ["much money", "two countries"]


def test_cards_are_watched_apart(driver: TopologyTestDriver) -> None:
    assert pay(driver, 0, card="a") == []
    assert pay(driver, 1, card="b", country="Peru") == []


def test_a_late_payment_completes_what_nobody_saw(driver: TopologyTestDriver) -> None:
    assert pay(driver, 20, country="Italy") == []
    assert pay(driver, 27, country="Italy", card="another") == []
    (alert,) = pay(driver, 22, country="Peru")
    assert (alert.value["countries"], alert.value["to"]) == (["Italy", "Peru"], 22 * MINUTE)


def test_a_payment_that_is_later_than_that_finds_its_window_closed_and_is_counted(driver: TopologyTestDriver) -> None:
    pay(driver, 20, country="Italy")
    pay(driver, 27.1, country="Italy", card="another")
    assert driver.metrics()["late-records-total"] == 0
    assert pay(driver, 22, country="Peru") == []
    assert driver.metrics()["late-records-total"] == 1
