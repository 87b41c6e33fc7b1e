"""An order counts for its own minute, as long as that is open, and for the country its customer lives in."""

from collections.abc import Iterator

import pytest

from examples.revenue import topology
from headwater import TopologyTestDriver, Windowed


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(topology) as driver:
        for user, country in {"ann": "Italy", "bob": "Norway", "eve": "Italy"}.items():
            driver.input("users").send(user, {"country": country}, at=0)
        yield driver


def order(driver: TopologyTestDriver, user: str, amount: float, seconds: int) -> list[tuple[str, int, float]]:
    """The updates that an order leads to: country, minute, revenue."""
    driver.input("orders").send(user, {"amount": amount}, at=seconds * 1000)
    updates = driver.output("revenue-per-country").read_all()
    return [(update.key.key, update.key.start // 60_000, update.value) for update in updates]


def test_orders_are_summed_per_country_and_minute(driver: TopologyTestDriver) -> None:
    assert order(driver, "ann", 40.0, 5) == [("Italy", 0, 40.0)]
    assert order(driver, "bob", 20.0, 20) == [("Norway", 0, 20.0)]
    assert order(driver, "eve", 15.5, 59) == [("Italy", 0, 55.5)]
    assert order(driver, "eve", 12.0, 60) == [("Italy", 1, 12.0)]
    assert list(driver.store("revenue").fetch("Italy", 0, 60_000)) == [
        (Windowed("Italy", 0, 60_000), 55.5),
        (Windowed("Italy", 60_000, 120_000), 12.0),
    ]


def test_a_late_order_corrects_its_minute_until_the_grace_is_over(driver: TopologyTestDriver) -> None:
    order(driver, "ann", 40.0, 5)
    order(driver, "bob", 20.0, 69)
    assert order(driver, "eve", 30.0, 10) == [("Italy", 0, 70.0)]
    order(driver, "bob", 20.0, 70)
    assert order(driver, "eve", 500.0, 10) == []
    assert driver.metrics()["late-records-total"] == 1


def test_small_orders_neither_count_nor_close_a_minute(driver: TopologyTestDriver) -> None:
    order(driver, "ann", 40.0, 5)
    assert order(driver, "bob", 10.0, 500) == []
    assert order(driver, "ann", 11.0, 6) == [("Italy", 0, 51.0)]


def test_who_moves_takes_no_past_revenue_along(driver: TopologyTestDriver) -> None:
    order(driver, "ann", 40.0, 5)
    driver.input("users").send("ann", {"country": "Norway"}, at=10_000)
    assert driver.output("revenue-per-country").read_all() == []
    assert order(driver, "ann", 25.0, 15) == [("Norway", 0, 25.0)]
    assert driver.store("revenue").get("Italy", 0) == 40.0


def test_an_order_of_nobody_known_is_left_out(driver: TopologyTestDriver) -> None:
    driver.input("users").send("ann", None, at=1000)
    assert order(driver, "ann", 40.0, 5) == []
    assert order(driver, "zoe", 40.0, 5) == []
