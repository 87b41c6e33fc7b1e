"""The share of errors in each service's log lines, minute by minute.

Every host ships its log to `logs`, line by line, under its own name. Whoever is on call wants one number per service
and minute in `error-rates`, and to be woken by `error-alerts` when it is over 5 %. A rate that is told too early is
wrong: the first line of a minute may be an error, which makes 100 %. So the results are held back until their minute,
and the grace for slow shippers, are over: one final record per service and minute, and no alert that must be taken
back. When a line was written stands in the line; when it arrived does not matter. Only lines move that clock: a
minute closes when a later line of any service in the same partition arrives.
"""

import re
from datetime import datetime, timedelta
from typing import Any

from headwater import SourceRecord, Str, StreamsBuilder, Suppress, TimeWindows

LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\S+) (INFO|WARN|ERROR) ")


def parse(line: str) -> list[dict[str, Any]]:
    """A line such as `2026-03-02T08:00:00.250Z checkout ERROR no answer` as a list of one; of none if it is not one."""
    found = LINE.match(line)
    if found is None:
        return []  # a line of a stack trace, say
    time, service, level = found.groups()
    return [{"at": round(datetime.fromisoformat(time).timestamp() * 1000), "service": service, "level": level}]


def written_at(record: SourceRecord, partition_time: int) -> int:
    """When a line was written; what is no log line stays at the time of the lines before it."""
    lines = parse(record.value)
    return lines[0]["at"] if lines else partition_time


def tally(service: str, line: dict[str, Any], counts: dict[str, int]) -> dict[str, int]:
    return {"lines": counts["lines"] + 1, "errors": counts["errors"] + (line["level"] == "ERROR")}


builder = StreamsBuilder()

rates = (
    builder.stream("logs", value=Str(), timestamp=written_at)
    .flat_map_values(parse)
    .group_by(lambda host, line: line["service"], name="by-service")
    .windowed_by(TimeWindows.of(timedelta(minutes=1), grace=timedelta(seconds=15)))
    .aggregate(lambda: {"lines": 0, "errors": 0}, tally, store="lines-per-service")
    .suppress(Suppress.until_window_closes(), name="final")
    .to_stream()
    .map_values(lambda counts: {**counts, "percent": round(100 * counts["errors"] / counts["lines"], 1)})
)
rates.to("error-rates")
rates.filter(lambda window, rate: rate["percent"] > 5).to("error-alerts")

topology = builder.build()
