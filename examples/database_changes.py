"""The changes of a shop's database, kept as tables, joined and summed up.

A connector writes each insert, update and delete of the tables `customers` and `orders` to a topic of its own
(`shop.customers`, `shop.orders`), under the row's primary key, with the row as it was before and as it is after. Sales
want each open order beside its customer in `orders-with-customers`, and the open sum per city in `open-per-city`. The
tables refer to each other by a foreign key, and each side may change first: a customer who moves updates all of his
orders, an order that is handed to another customer follows him, a deleted customer takes his orders out of the result.
The sums follow, too: before a changed row is added to its new city, its old self is subtracted from its old one, and a
city whose last order is gone is deleted.
"""

from typing import Any

from headwater import StreamsBuilder


def row(change: dict[str, Any] | None) -> dict[str, Any] | None:
    """The row after a change: None, which deletes it, after a delete and for the tombstone that follows one."""
    return None if change is None else change["after"]


def with_customer(order: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    return {"item": order["item"], "cents": order["cents"], "name": customer["name"], "city": customer["city"]}


def no_orders() -> dict[str, Any]:
    return {"orders": 0, "cents": 0}


def add(city: str, order: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
    return {"orders": total["orders"] + 1, "cents": total["cents"] + order["cents"]}


def subtract(city: str, order: dict[str, Any], total: dict[str, Any]) -> dict[str, Any] | None:
    """The total without an order: None, which deletes the city, when it was the last."""
    if total["orders"] == 1:
        return None
    return {"orders": total["orders"] - 1, "cents": total["cents"] - order["cents"]}


builder = StreamsBuilder()
customers = builder.stream("shop.customers").map_values(row).to_table(store="customers")
orders = builder.stream("shop.orders").map_values(row).to_table(store="orders")

joined = orders.join(
    customers,
    with_customer,
    foreign_key=lambda order: order["customer"],
    store="orders-with-customers",
    name="customer-of-order",
)
joined.to_stream().to("orders-with-customers")

(
    joined.group_by(lambda order_id, order: (order["city"], order), name="by-city")
    .aggregate(no_orders, add, subtract, store="open-per-city")
    .to_stream()
    .to("open-per-city")
)

topology = builder.build()
