"""Trips of trucks, and an alarm when one falls silent.

A haulier's trucks report to `positions` about once a minute while they drive, and once more when they park. The office
wants every trip with its kilometres in `trips`, and the dispatcher a list of the trucks that should report and do not,
in `silent-trucks`. Two things are subtle. A truck in a dead spot sends its positions later, all at once: what looked
like two trips was one. The session windows merge, and the two are deleted before the one appears. And a silent truck
sends nothing at all, so that no record can raise its alarm: a processor looks at the clock on the wall once a minute.
An alarm is a row with the truck's last place; it is deleted when the truck reports again.
"""

from datetime import timedelta
from typing import Any

from headwater import KeyValue, Processor, Record, SessionWindows, StreamsBuilder

SILENCE = timedelta(minutes=15)


def first_leg(position: dict[str, Any]) -> dict[str, Any]:
    """A trip of one position."""
    return {"from_km": position["km"], "to_km": position["km"], "reports": 1}


def one_trip(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Two parts of a trip as one, in whichever order they came."""
    return {
        "from_km": min(a["from_km"], b["from_km"]),
        "to_km": max(a["to_km"], b["to_km"]),
        "reports": a["reports"] + b["reports"],
    }


class SilenceAlarm(Processor):
    """Forwards an alarm when a driving truck has not reported for 15 minutes, and its deletion when it does again."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.last_reports = context.store("last-reports")
        context.schedule(timedelta(minutes=1), "wall-clock", self.look_at_the_clock)

    def process(self, record: Record) -> None:
        last = self.last_reports.get(record.key)
        if last is not None and record.timestamp < last["at"]:
            return  # sent late from a dead spot: the truck may have parked since
        if last is not None and last["state"] == "silent":
            self.context.forward(record.replace(value=None))
        position = record.value
        report = {
            "at": record.timestamp,
            "place": [position["lat"], position["lon"]],
            "state": "parked" if position["parked"] else "driving",
        }
        self.last_reports.put(record.key, report)

    def look_at_the_clock(self, now: int) -> None:
        for truck, last in self.last_reports.all():
            if last["state"] == "driving" and timedelta(milliseconds=now - last["at"]) > SILENCE:
                self.last_reports.put(truck, {**last, "state": "silent"})
                self.context.forward(Record(truck, {"silent_since": last["at"], "place": last["place"]}, now))


builder = StreamsBuilder()
builder.add_store(KeyValue("last-reports"))
positions = builder.stream("positions")

(
    positions.map_values(first_leg)
    .group_by_key()
    .windowed_by(SessionWindows.of(timedelta(minutes=10), grace=timedelta(minutes=30)))
    .reduce(one_trip, store="trips")
    .to_stream()
    .to("trips")
)

positions.process(SilenceAlarm, stores=["last-reports"], name="silence-alarm").to("silent-trucks")

topology = builder.build()
