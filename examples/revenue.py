"""Revenue per country and minute: orders, enriched with the customers who placed them.

A shop writes every order to `orders` and every change of a customer to `users`, both under the customer's name.
Marketing wants to see in `revenue-per-country`, minute by minute, how much each country buys; small orders do not
interest them. An order counts for the minute in which it was placed and the country the customer lived in when it came
in: who moves takes no past revenue along. It may arrive up to ten seconds late, then its minute's total is corrected;
after that the minute is closed, and the order is dropped and counted as late.
"""

from datetime import timedelta

from headwater import Json, StreamsBuilder, TimeWindows

builder = StreamsBuilder()
orders = builder.stream("orders", value=Json())
users = builder.table("users", value=Json(), store="users")

(
    orders.filter(lambda key, order: order["amount"] > 10)
    .join(users, lambda order, user: {**order, "country": user["country"]})
    .group_by(lambda key, order: order["country"], name="by-country")
    .windowed_by(TimeWindows.of(timedelta(minutes=1), grace=timedelta(seconds=10)))
    .aggregate(lambda: 0.0, lambda key, order, total: total + order["amount"], store="revenue")
    .to_stream()
    .to("revenue-per-country")
)

topology = builder.build()
