"""A shop's afternoon in half a minute: `make demo`.

Orders and customers are written to an embedded log in a temporary directory while an application, the topology of
revenue.py, reads them, joins them and sums them up per country and minute, with its state in RocksDB and every result
counted exactly once. What it writes to `revenue-per-country` is shown as it comes. Nothing else is needed, and nothing
is left behind.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples import data
from examples.revenue import topology
from headwater import Admin, App, Consumer, Json, Producer, Str, TimeWindowed, run

ORDERS, USERS, SECONDS = 6000, 200, 24
# The table has a line per minute of the shop's time: the last ones.
LINES = 12

_key = TimeWindowed(Str(), size=timedelta(minutes=1))
_value = Json()


@dataclass
class Revenue:
    """The latest revenue of each country and minute, as the results tell it."""

    totals: dict[int, dict[str, float]] = field(default_factory=dict)
    updates: int = 0
    changed: set[tuple[int, str]] = field(default_factory=set)

    def take(self, key: bytes, value: bytes) -> None:
        """Take a result: a new total of a country and minute."""
        window = _key.decode(key)
        self.totals.setdefault(window.start, {})[window.key] = _value.decode(value)
        self.updates += 1
        self.changed.add((window.start, window.key))

    def table(self, lines: int = LINES) -> Table:
        """The last minutes, a column per country; what has changed since the last look stands out."""
        table = Table(title="revenue per country and minute", title_style="bold", header_style="bold cyan")
        table.add_column("minute")
        for country in data.COUNTRIES:
            table.add_column(country, justify="right", min_width=10)
        for start in sorted(self.totals)[-lines:]:
            cells = []
            for country in data.COUNTRIES:
                total = self.totals[start].get(country)
                text = "" if total is None else f"{total:,.2f}"
                cells.append(Text(text, style="bold green" if (start, country) in self.changed else ""))
            table.add_row(f"{datetime.fromtimestamp(start / 1000, UTC):%H:%M}", *cells)
        self.changed.clear()
        return table


def produce(broker: str, orders: int, seconds: float) -> None:
    """Write customers and orders to the log, spread over some seconds of our time and over hours of the shop's."""
    began = time.monotonic()
    # Records of hours pass in seconds, so a commit's worth of them spans minutes. Over several partitions they would
    # overtake each other by more than the ten seconds that an order may be late: hence one.
    with Producer(broker) as producer:
        for number, (topic, key, value, timestamp) in enumerate(data.revenue(orders, users=USERS)):
            ahead = number / orders * seconds - (time.monotonic() - began)
            if ahead > 0.02:
                time.sleep(ahead)
            if topic == "orders" and number == USERS:
                # The customers first: an order of one who is not there yet would find nobody to be joined with.
                producer.flush()
            producer.send(topic, key=key, value=json.dumps(value), timestamp=timestamp)


@contextmanager
def shop() -> Iterator[tuple[str, App]]:
    """An embedded log with the topics, and the application at work on it; all of it gone at the end."""
    with tempfile.TemporaryDirectory(prefix="headwater-demo-", ignore_cleanup_errors=True) as folder:
        broker = f"log://{folder}"
        admin = Admin(broker)
        for topic in ("orders", "users", "revenue-per-country"):
            admin.create_topic(topic)
        with run(topology, app_id="revenue", broker=broker, block=False) as app:
            yield broker, app


def read(consumer: Consumer, revenue: Revenue) -> None:
    """Take all results there are."""
    while records := consumer.poll(10_000):
        for record in records:
            assert record.key is not None
            assert record.value is not None
            revenue.take(record.key, record.value)


Show: TypeAlias = Callable[[Revenue, dict[str, Any]], None]


def play(orders: int, seconds: float, show: Show = lambda revenue, metrics: None) -> tuple[Revenue, dict[str, Any]]:
    """Have the shop's customers order, show the results now and then, and return the last ones with the metrics."""
    revenue = Revenue()
    with shop() as (broker, app), Consumer(broker, "revenue-per-country", start="earliest") as consumer:
        customers = threading.Thread(target=produce, args=(broker, orders, seconds), daemon=True)
        customers.start()
        while customers.is_alive():
            customers.join(0.25)
            read(consumer, revenue)
            show(revenue, app.metrics())
        app.wait_idle()
        read(consumer, revenue)
        metrics = app.metrics()
        # The same figure from where the application itself keeps it.
        last = max(revenue.totals)
        country, total = max(revenue.totals[last].items())
        assert app.store("revenue").get(country, last) == total
        return revenue, metrics


def figures(revenue: Revenue, metrics: dict[str, Any]) -> str:
    """What has come in and gone out, in a line."""
    latency = metrics["latency-max-ms"]
    steps = metrics["tasks"]["0_0"]["steps"]
    orders = steps["KSTREAM-SOURCE-0000000000"]["records-total"]
    return (
        f"{orders:,} orders in, {revenue.updates:,} updates out, {metrics['late-records-total']:,} too late to count; "
        f"{metrics['records-rate']:,.0f} records/s, {metrics['commits-total']:,} commits"
        + ("" if latency is None or latency > 60_000 else f", {latency} ms from record to result")
    )


def main() -> None:
    """Play it: live on a terminal, only its end elsewhere."""
    orders, seconds = ORDERS, SECONDS
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(topology.describe(), highlight=False, markup=False)
    console.print(
        f"A topology with a join and a windowed sum, on an embedded log, with RocksDB state: {seconds} seconds.\n",
        style="bold",
    )

    def shown(revenue: Revenue, metrics: dict[str, Any]) -> RenderableType:
        return Group(revenue.table(), Text(figures(revenue, metrics), style="dim"))

    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            play(orders, seconds, lambda revenue, metrics: live.update(shown(revenue, metrics), refresh=True))
    else:
        console.print(shown(*play(orders, seconds)))
    console.print("\nThe same by hand: `headwater topics create orders`, …, `headwater run examples/revenue.py`.")


if __name__ == "__main__":
    main()
