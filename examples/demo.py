"""The revenue topology fed with a few minutes of orders through the test driver, shown as a table: `make demo`."""

from examples.revenue import topology
from headwater import Record, TopologyTestDriver

USERS = {"ann": "Italy", "bob": "Norway", "eve": "Italy"}
# (seconds, customer, amount): the order of bob at 0:50 arrives late, but within the grace; eve's at 0:10 is too late.
ORDERS = [(5, "ann", 40.0), (20, "bob", 8.0), (31, "eve", 15.5), (62, "ann", 12.0), (50, "bob", 99.0)]
ORDERS += [(75, "eve", 30.0), (130, "bob", 20.0), (10, "eve", 500.0)]


def run() -> tuple[list[Record], int]:
    """Every update of the revenue table, in order, and how many orders came too late."""
    with TopologyTestDriver(topology) as driver:
        for user, country in USERS.items():
            driver.input("users").send(user, {"country": country}, at=0)
        for seconds, user, amount in ORDERS:
            driver.input("orders").send(user, {"amount": amount}, at=seconds * 1000)
        return driver.output("revenue-per-country").read_all(), driver.metrics()["late-records-total"]


def table(records: list[Record]) -> str:
    """The updates as lines: minute, country, revenue so far."""
    lines = [f"{'minute':<12}{'country':<10}{'revenue':>9}", "-" * 31]
    for record in records:
        start, end = record.key.start // 1000, record.key.end // 1000
        minute = f"{start // 60}:{start % 60:02}-{end // 60}:{end % 60:02}"
        lines.append(f"{minute:<12}{record.key.key:<10}{record.value:>9.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    updates, late = run()
    print(topology.describe())
    print(table(updates))
    print(f"\n{late} order came too late: its minute had closed.")
