"""Whatever changes, the joined table and the sums are those of the tables as they are now."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from examples import data
from examples.database_changes import topology
from headwater import TopologyTestDriver

ANN = {"name": "Ann", "city": "Parma"}
BOB = {"name": "Bob", "city": "Bergen"}


class Shop:
    """A driver with the changes of a database as its input."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver

    def change(self, table: str, key: str, after: dict[str, Any] | None) -> None:
        operation = "delete" if after is None else "update"
        self.driver.input(f"shop.{table}").send(key, {"op": operation, "after": after}, at=0)

    def joined(self) -> list[tuple[str, str | None]]:
        """The new updates of the join: an order's key, and whose it is in which city (None for a deletion)."""
        return [
            (update.key, update.value and f"{update.value['name']}, {update.value['city']}")
            for update in self.driver.output("orders-with-customers").read_all()
        ]

    def cities(self) -> list[tuple[str, int | None]]:
        """The new updates of the sums: a city, and its cents (None for a deletion)."""
        updates = self.driver.output("open-per-city").read_all()
        return [(update.key, update.value and update.value["cents"]) for update in updates]


@pytest.fixture
def shop() -> Iterator[Shop]:
    """A shop where Ann in Parma has a lamp and a desk open, and Bob in Bergen nothing."""
    with TopologyTestDriver(topology) as driver:
        shop = Shop(driver)
        shop.change("customers", "ann", ANN)
        shop.change("customers", "bob", BOB)
        shop.change("orders", "o1", {"customer": "ann", "item": "lamp", "cents": 500})
        shop.change("orders", "o2", {"customer": "ann", "item": "desk", "cents": 900})
        assert shop.joined() == [("o1", "Ann, Parma"), ("o2", "Ann, Parma")]
        assert shop.cities() == [("Parma", 500), ("Parma", 1400)]
        yield shop


def test_a_customer_who_moves_updates_all_orders_and_takes_their_sum_along(shop: Shop) -> None:
    shop.change("customers", "ann", {**ANN, "city": "Cusco"})
    assert shop.joined() == [("o1", "Ann, Cusco"), ("o2", "Ann, Cusco")]
    assert shop.cities() == [("Parma", 900), ("Cusco", 500), ("Parma", None), ("Cusco", 1400)]


def test_an_order_that_changes_in_place_is_subtracted_and_added_in_one_update(shop: Shop) -> None:
    shop.change("orders", "o1", {"customer": "ann", "item": "lamp", "cents": 700})
    assert shop.cities() == [("Parma", 1600)]


def test_an_order_handed_over_follows_its_new_customer(shop: Shop) -> None:
    shop.change("orders", "o1", {"customer": "bob", "item": "lamp", "cents": 500})
    assert shop.joined() == [("o1", "Bob, Bergen")]
    assert shop.cities() == [("Parma", 900), ("Bergen", 500)]
    shop.change("customers", "ann", {**ANN, "city": "Cusco"})
    assert shop.joined() == [("o2", "Ann, Cusco")]


def test_an_order_handed_to_nobody_known_leaves_and_comes_back_with_the_customer(shop: Shop) -> None:
    shop.change("orders", "o1", {"customer": "zoe", "item": "lamp", "cents": 500})
    assert shop.joined() == [("o1", None)]
    shop.change("customers", "zoe", {"name": "Zoe", "city": "Odense"})
    assert shop.joined() == [("o1", "Zoe, Odense")]


def test_a_deleted_order_is_gone(shop: Shop) -> None:
    shop.change("orders", "o1", None)
    assert shop.joined() == [("o1", None)]
    assert shop.cities() == [("Parma", 900)]
    assert shop.driver.store("orders").get("o1") is None


def test_a_deleted_customer_takes_the_orders_out_and_empties_the_city(shop: Shop) -> None:
    shop.change("customers", "ann", None)
    assert shop.joined() == [("o1", None), ("o2", None)]
    assert shop.cities() == [("Parma", 900), ("Parma", None)]
    assert list(shop.driver.store("open-per-city").all()) == []
    assert [key for key, _ in shop.driver.store("orders").all()] == ["o1", "o2"]


def test_the_tombstone_after_a_delete_changes_nothing(shop: Shop) -> None:
    shop.change("orders", "o1", None)
    shop.cities()
    shop.driver.input("shop.orders").send("o1", None, at=1)
    assert shop.cities() == []
    assert [key for key, _ in shop.driver.store("orders-with-customers").all()] == ["o2"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_is_kept_is_what_a_query_of_the_tables_would_give(partitions: int) -> None:
    tables: dict[str, dict[str, Any]] = {"shop.customers": {}, "shop.orders": {}}
    with TopologyTestDriver(topology, partitions=partitions) as driver:
        for topic, key, change, at in data.database_changes(300):
            driver.input(topic).send(key, change, at=at)
            tables[topic][key] = change["after"]
        joined = dict(driver.store("orders-with-customers").all())
        per_city = dict(driver.store("open-per-city").all())

    expected = {}
    sums: dict[str, dict[str, int]] = defaultdict(lambda: {"orders": 0, "cents": 0})
    for key, order in tables["shop.orders"].items():
        customer = order and tables["shop.customers"].get(order["customer"])
        if customer:
            expected[key] = {"item": order["item"], "cents": order["cents"], **customer}
            sums[customer["city"]]["orders"] += 1
            sums[customer["city"]]["cents"] += order["cents"]
    assert len(expected) > 20
    assert joined == expected
    assert per_city == sums
