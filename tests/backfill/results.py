"""What a backfill has written, in a form that is the same for all back ends, and how it is compared."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater import Topology, Windowed
from headwater.dsl.records import Headers
from headwater.dsl.serde import Serde
from headwater.dsl.topology import Sink

if TYPE_CHECKING:
    from tests.backfill.topologies import Case

# A key, and the bounds of its window: 0 and 0 without one.
Key = tuple[str, int, int]
DROPPED, LATE = "dropped-records-total", "late-records-total"


class Row(NamedTuple):
    """A result."""

    key: Key
    value: Any
    timestamp: int
    headers: Headers = ()


@dataclass
class Outcome:
    """All that was written, by topic and in order, and how many records each step has dropped, for any cause."""

    rows: dict[str, list[Row]]
    dropped: Counter[str] = field(default_factory=Counter)

    def count(self, steps: Iterable[Mapping[str, Mapping[str, int]]]) -> None:
        """Take over the counts of steps, of one application or of several."""
        for each in steps:
            for step, counts in each.items():
                # What is late is dropped too, but where Spark drops it by its watermark.
                lost = max(counts.get(DROPPED, 0), counts.get(LATE, 0))
                # An answer to a row that has changed meanwhile is counted as dropped, here as in Kafka Streams.
                if lost and not step.endswith("-response-resolver"):
                    self.dropped[step] += lost


def plain_key(key: Any) -> Key:
    return (key.key, key.start, key.end) if isinstance(key, Windowed) else (key, 0, 0)


def serdes(topology: Topology, topic: str) -> tuple[Serde, Serde]:
    """The serdes of the sink that writes a topic."""
    sink = next(n for n in topology.nodes.values() if isinstance(n, Sink) and n.topic == topic)
    return sink.key, sink.value


def decoded(topology: Topology, topic: str, records: Iterable[tuple[Any, Any, int, Headers]]) -> list[Row]:
    """Results from bytes."""
    key_serde, value_serde = serdes(topology, topic)
    return [
        Row(plain_key(key_serde.decode(key)), None if value is None else value_serde.decode(value), at, tuple(headers))
        for key, value, at, headers in records
    ]


# ---- comparing -------------------------------------------------------------------------------------------------------

# The only ones that the inputs have.
HEADERS = {"number"}


def compared(case: "Case", rows: Iterable[Row]) -> Any:
    """The part of some results that all runs agree on."""
    kept = []
    for row in rows:
        if case.settled(row):
            row = row if case.timestamps else row._replace(timestamp=0)
            kept.append(row if case.headers else row._replace(headers=()))
    if case.compare == "all":
        return Counter(repr(tuple(row)) for row in kept)
    return {key: row for key, row in {row.key: row for row in kept}.items() if row.value is not None}


def difference(case: "Case", expected: Iterable[Row], rows: Iterable[Row]) -> str | None:
    """In what results differ from the expected ones, None if they do not; and which headers should not be there."""
    rows = list(rows)
    strange = Counter(name for row in rows for name, _ in row.headers if name not in HEADERS)
    if strange:
        return f"{case.name}: headers that no input has: {dict(strange)}"
    wanted, found = compared(case, expected), compared(case, rows)
    if wanted == found:
        return None
    keys = wanted.keys() | found.keys()
    wrong = sorted((key for key in keys if wanted.get(key) != found.get(key)), key=str)
    shown = "\n".join(f"  {key}: {wanted.get(key)} expected, {found.get(key)} found" for key in wrong[:5])
    return f"{case.name}: {len(wrong)} of {len(wanted)} differ:\n{shown}"


def lost_records(case: "Case", expected: Iterable[Row], rows: Iterable[Row]) -> int:
    """How many input records are missing in the final results."""
    assert case.records is not None
    counts = [sum(map(case.records, compared(case, each).values())) for each in (expected, rows)]
    return counts[0] - counts[1]
