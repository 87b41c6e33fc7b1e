"""Card payments, watched for signs of fraud.

A bank sees every payment with a card in `payments`, under the card's number, and wants to hear at once in
`fraud-alerts` when ten minutes of a card look wrong: too many payments, too much money, or two countries. Windows that
begin on the hour and every ten minutes after would miss a thief who starts at 10:08 and ends at 10:12. A sliding window
looks at the ten minutes around every payment, so that no burst falls between two windows. Terminals may be offline: a
payment that arrives up to five minutes late is still put where it belongs, and may complete a pattern that nobody saw.
Every change of a window that breaks a rule is told under the card's number, so that a reader who keeps the topic as a
table has one row per card: its latest alert.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from headwater import SlidingWindows, StreamsBuilder

RULES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "many payments": lambda seen: seen["payments"] > 5,
    "much money": lambda seen: seen["cents"] > 200_000,
    "two countries": lambda seen: len(seen["countries"]) > 1,
}


def nothing_seen() -> dict[str, Any]:
    return {"payments": 0, "cents": 0, "countries": []}


def seen_with(card: str, payment: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """What a window has seen of a card once this payment is in it, too."""
    return {
        "payments": seen["payments"] + 1,
        "cents": seen["cents"] + payment["cents"],
        "countries": sorted({*seen["countries"], payment["country"]}),
    }


def broken_rules(seen: dict[str, Any]) -> list[str]:
    return [rule for rule, is_broken in RULES.items() if is_broken(seen)]


builder = StreamsBuilder()

(
    builder.stream("payments")
    .group_by_key()
    .windowed_by(SlidingWindows.of(timedelta(minutes=10), grace=timedelta(minutes=5)))
    .aggregate(nothing_seen, seen_with, store="seen-per-card")
    .to_stream()
    .map_values(lambda seen: {"rules": broken_rules(seen), **seen})
    .filter(lambda window, alert: alert["rules"])
    .map(lambda window, alert: (window.key, {**alert, "from": window.start, "to": window.end}))
    .to("fraud-alerts")
)

topology = builder.build()
