"""The demo's pieces: what it shows is what the test driver gives for the same orders.

Which of two topics a record arrives in first is chance: an order counts for the country its customer lives in when it
comes. So minutes are compared as a whole.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples import data, demo
from examples.revenue import topology
from headwater import TopologyTestDriver


def test_the_demo_shows_what_the_driver_gives() -> None:
    looks: list[dict[str, Any]] = []
    revenue, metrics = demo.play(400, 0.5, lambda revenue, metrics: looks.append(metrics))
    with TopologyTestDriver(topology) as driver:
        driver.send_all(data.revenue(400, users=200))
        records = driver.output("revenue-per-country").read_all()
        late = driver.metrics()["late-records-total"]
    expected: dict[int, dict[str, float]] = {}
    for record in records:
        expected.setdefault(record.key.start, {})[record.key.key] = record.value
    assert {minute: pytest.approx(sum(totals.values())) for minute, totals in revenue.totals.items()} == {
        minute: sum(totals.values()) for minute, totals in expected.items()
    }
    assert revenue.updates == len(records)
    assert metrics["late-records-total"] == late > 0
    assert looks
    assert f"400 orders in, {len(records)} updates out, {late} too late" in demo.figures(revenue, metrics)


def test_the_table_shows_the_last_minutes_and_marks_what_is_new() -> None:
    revenue = demo.Revenue()
    for minute in range(20):
        revenue.take(demo._key.encode(_window("Italy", minute)), b"1234.5")
    console = Console(record=True, width=100, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(revenue.table(lines=3))
    text = console.export_text(clear=False)
    assert [line.split()[1] for line in text.splitlines() if "1,234.50" in line] == ["00:17", "00:18", "00:19"]
    assert "Denmark" in text
    assert revenue.changed == set()


def _window(country: str, minute: int) -> Any:
    from headwater import Windowed

    return Windowed(country, minute * 60_000, (minute + 1) * 60_000)


def test_it_is_plain_text_elsewhere() -> None:
    root = Path(__file__).parent.parent.parent
    script = "from examples import demo; demo.ORDERS, demo.SECONDS = 100, 0; demo.main()"
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "100 orders in" in done.stdout
    assert "revenue per country and minute" in done.stdout
