"""Replaying traces: a player takes the steps of a trace one by one and says what came out; then expected and got are
compared. Owns the trace format and the comparison for all back ends; how one of them is driven, its player knows."""

import base64
import difflib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import cloudpickle

from headwater import Int64, SessionWindowed, Str, TimeWindowed, Topology, Windowed
from tests.conformance.case import Case

Step = dict[str, Any]
TRACES = Path(__file__).parent / "traces"


@dataclass(frozen=True)
class Trace:
    """One trace file; `name` is `<topology>.<seed>`."""

    name: str
    body: dict[str, Any] = field(repr=False)

    @property
    def topology(self) -> str:
        return self.body["topology"]

    @property
    def steps(self) -> list[Step]:
        return self.body["steps"]

    @property
    def sources(self) -> list[str]:
        return [name for name, topic in self.body["topics"].items() if "source" in topic["role"]]

    @property
    def sinks(self) -> list[str]:
        """The topics written to, in the order of a step's `out`."""
        return sorted(name for name, topic in self.body["topics"].items() if "sink" in topic["role"])

    @property
    def global_topics(self) -> set[str]:
        """The topics that feed global stores."""
        _, _, described = self.body["describe"].partition("for global store")
        return set(re.findall(r"\(topics: \[(.*?)\]\)", described))

    @property
    def drops_are_advice(self) -> bool:
        """Whether Kafka's own count of drops hangs on the kind of store: stream-stream joins and sessions."""
        return (
            self.body["group"] == "Stream-stream joins"
            or re.search(r"KSTREAM-WINDOWED-\d|-(this|other)-windowed ", self.body["describe"]) is not None
            or "session" in self.body["store_kinds"].values()
            or any("session" in topic["key"] for topic in self.body["topics"].values())
        )

    def serdes(self, topic: str) -> tuple[Any, Any]:
        """Return the key's and the value's serde of a topic."""
        described = self.body["topics"][topic]
        plain = {"string": Str(), "long": Int64()}
        key = described["key"]
        if key == "time-windowed<string>":
            return TimeWindowed.of_ms(Str(), described["key_window_size_ms"]), plain[described["value"]]
        if key == "session-windowed<string>":
            return SessionWindowed(Str()), plain[described["value"]]
        return plain[key], plain[described["value"]]


@cache
def load_trace(path: Path) -> Trace:
    """Read a trace file."""
    return Trace(path.stem, json.loads(path.read_text()))


def trace_files() -> list[Path]:
    """Return the trace files of HEADWATER_TRACES, or of the project."""
    folder = Path(os.environ.get("HEADWATER_TRACES", TRACES))
    return sorted(path for path in folder.glob("*.json") if path.name != "index.json")


@cache
def registry() -> dict[str, Callable[[Case], Topology]]:
    """Return the registered topologies, with those of the file HEADWATER_TOPOLOGIES."""
    from tests.conformance.topologies import TOPOLOGIES

    more = os.environ.get("HEADWATER_TOPOLOGIES")
    return {**TOPOLOGIES, **(load_topologies(Path(more)) if more else {})}


def load_topologies(file: Path) -> dict[str, Callable[[Case], Topology]]:
    """Return the TOPOLOGIES that a Python file defines."""
    spec = importlib.util.spec_from_file_location("more_topologies", file)
    assert spec, f"HEADWATER_TOPOLOGIES: {file} is no Python file"
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # Another process cannot import this module by name.
    cloudpickle.register_pickle_by_value(module)
    return module.TOPOLOGIES


def build(trace: Trace) -> tuple[Topology, Case]:
    """Build the topology that a trace names, with a case for it."""
    case = Case(trace.body["config"])
    assert trace.topology in registry(), f"{trace.name}: no topology is registered as {trace.topology!r}"
    return registry()[trace.topology](case), case


@dataclass
class Observed:
    """What one step brought, written as in the trace."""

    out: list[dict[str, Any]]
    effects: list[str]
    dropped: int
    error: str | None = None


@dataclass
class Contents:
    """The stores after the last step, written as in the trace."""

    rows: dict[str, list[list[Any]]]
    timestamps: dict[str, list[int | None]]
    versions: dict[str, list[dict[str, Any]]]


class Player(AbstractContextManager["Player"], Protocol):
    """Something that runs a topology step by step: the driver, and whatever back end comes to be compared with it."""

    def play(self, step: Step) -> Observed:
        """Take one step (an input or an advance of the clock) and return all it brought; after an error, no more."""

    def contents(self, trace: Trace) -> Contents:
        """Return what the stores hold that the trace shows."""

    def describe(self) -> str:
        """Return the topology's description."""


@dataclass
class Replay:
    """All that a player said about one trace; it can be pickled, and compared elsewhere."""

    observed: list[Observed]
    contents: Contents | None  # None after an error
    describe: str


def replay(trace: Trace, player: Player) -> Replay:
    """Play a trace up to its end or the first error."""
    observed: list[Observed] = []
    for step in trace.steps:
        observed.append(player.play(step))
        if observed[-1].error:
            return Replay(observed, None, player.describe())
    return Replay(observed, player.contents(trace), player.describe())


# Comparison


def check(trace: Trace, replayed: Replay, on: str) -> None:
    """Fail with a text for people where a replay differs from its trace."""
    __tracebackhide__ = True
    found = next(step_faults(trace, replayed.observed), None) or next(end_faults(trace, replayed), None)
    faults = [fault for fault in (found, describe_fault(trace, replayed.describe)) if fault]
    if faults:
        raise AssertionError(f"{trace.name} on {on}: " + "\n".join(faults))


def check_batches(
    trace: Trace, batches: Sequence[Sequence[Step]], observed: Sequence[Observed], contents: Contents, on: str
) -> None:
    """Fail where what a batch of steps brought differs from what the trace has for them, keys apart."""
    __tracebackhide__ = True
    faults = []
    for number, (steps, got) in enumerate(zip(batches, observed, strict=True)):
        where = f"batch {number} of {len(batches)} (from 0), {', '.join(map(_input, steps))}"
        if got.error:
            faults.append(f"{where}: {got.error}")
        expected_out = _by_key(record for step in steps for record in step["out"])
        if _by_key(got.out) != expected_out:
            faults.append(_differs(f"{where}: out", list(expected_out.items()), list(_by_key(got.out).items())))
        expected_effects = [effect for step in steps for effect in step.get("effects", [])]
        if got.effects != expected_effects:
            faults.append(_differs(f"{where}: effects", expected_effects, got.effects))
        dropped = sum(step.get("dropped", 0) for step in steps)
        if got.dropped != dropped and not trace.drops_are_advice:
            faults.append(_differs(f"{where}: dropped", dropped, got.dropped))
    faults += end_faults(trace, Replay(list(observed), contents, ""))
    if faults:
        raise AssertionError(f"{trace.name} on {on}: " + "\n".join(faults))


def _by_key(out: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in out:
        found.setdefault(f"{record['topic']} {json.dumps(record['key'])}", []).append(record)
    return found


def step_faults(trace: Trace, observed: Sequence[Observed]) -> Iterator[str]:
    for number, (step, got) in enumerate(zip(trace.steps, observed, strict=False)):
        where = f"step {number} of {len(trace.steps)} (from 0), {_input(step)}"
        if (got.error is None) != ("error" not in step):
            yield _differs(f"{where}: error", step.get("error"), got.error)
        if got.out != step["out"]:
            yield _differs(f"{where}: out", step["out"], got.out)
        if got.effects != step.get("effects", []):
            yield _differs(f"{where}: effects", step.get("effects", []), got.effects)
        if got.dropped != step.get("dropped", 0) and not trace.drops_are_advice:
            yield _differs(f"{where}: dropped", step.get("dropped", 0), got.dropped)
    if len(observed) != len(trace.steps):
        yield f"{len(observed)} of {len(trace.steps)} steps were played"


def end_faults(trace: Trace, replayed: Replay) -> Iterator[str]:
    contents = replayed.contents
    if contents is not None:
        for name, rows in trace.body["stores"].items():
            if contents.rows[name] != rows:
                yield _differs(f"store {name} at the end", rows, contents.rows[name])
            if contents.timestamps[name] != trace.body["store_ts"][name]:
                yield _differs(
                    f"timestamps of store {name} at the end, rows {rows}",
                    trace.body["store_ts"][name],
                    contents.timestamps[name],
                )
        for name, versions in trace.body.get("store_versions", {}).items():
            if contents.versions[name] != versions:
                yield _differs(f"versions in store {name} at the end", versions, contents.versions[name])
    expected, got = trace.body["metrics"]["dropped_records_total"], sum(step.dropped for step in replayed.observed)
    if expected != got and not trace.drops_are_advice:
        yield _differs("dropped in all", expected, got)


def describe_fault(trace: Trace, described: str) -> str | None:
    if described == trace.body["describe"]:
        return None
    lines = difflib.unified_diff(
        trace.body["describe"].splitlines(), described.splitlines(), "expected", "got", lineterm="", n=100
    )
    return "describe() differs\n" + ("\n".join(lines) or f"{trace.body['describe']!r}\n{described!r}")


def _input(step: Step) -> str:
    if "in" in step:
        return f"in {json.dumps(step['in'], ensure_ascii=False)}"
    return f"advance by {step['advance_wall_clock_ms']} ms"


def _differs(what: str, expected: object, got: object) -> str:
    return f"{what} differs\n  expected: {_lines(expected)}\n  got:      {_lines(got)}"


def _lines(value: object) -> str:
    if isinstance(value, list) and value:
        return "\n" + "\n".join(f"    {json.dumps(item, ensure_ascii=False)}" for item in value)
    return json.dumps(value, ensure_ascii=False)


# The trace's way of writing


def written_key(key: Any) -> Any:
    """Write a key as the traces do."""
    return {"key": key.key, "start": key.start, "end": key.end} if isinstance(key, Windowed) else key


def written_record(topic: str, record: Any) -> dict[str, Any]:
    """Write an output record as the traces do."""
    written = {"topic": topic, "key": written_key(record.key), "value": record.value, "ts": record.timestamp}
    if record.headers:
        written["headers"] = [[name, None if value is None else value.decode()] for name, value in record.headers]
    return written


def input_headers(given: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    """Read the headers of a step's input."""
    return tuple((name, None if value is None else value.encode()) for name, value in given.get("headers", ()))


def raw_value(given: dict[str, Any]) -> bytes | None:
    """Read the raw bytes of a step's input, None where it has a typed value."""
    return base64.b64decode(given["value_base64"]) if "value_base64" in given else None


def encoded(trace: Trace, given: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
    """Return key and value of a step's input as bytes."""
    key_serde, value_serde = trace.serdes(given["topic"])
    key = None if given["key"] is None else key_serde.encode(given["key"])
    value = raw_value(given)
    if value is None and given["value"] is not None:
        value = value_serde.encode(given["value"])
    return key, value


def row_order(row: Sequence[Any]) -> tuple[Any, ...]:
    """Order rows as the traces do: by key, then start, then end."""
    key = row[0]
    return (key["key"], key["start"], key["end"]) if isinstance(key, dict) else (key,)
