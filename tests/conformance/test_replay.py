"""The comparison itself: a player that repeats the trace passes, and each single change in what it says is found."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.conformance.case import Case
from tests.conformance.replay import (
    TRACES,
    Contents,
    Observed,
    Replay,
    Trace,
    build,
    check,
    load_topologies,
    load_trace,
)

Change = Callable[[Replay], Any]


def perfect(trace: Trace) -> Replay:
    body = copy.deepcopy(trace.body)
    observed = [
        Observed(step["out"], step.get("effects", []), step.get("dropped", 0), step.get("error"))
        for step in body["steps"]
    ]
    contents = Contents(body["stores"], body["store_ts"], body.get("store_versions", {}))
    return Replay(observed, None if observed[-1].error else contents, body["describe"])


def first_out(replayed: Replay) -> dict[str, Any]:
    return next(record for step in replayed.observed for record in step.out)


def reverse_the_last_of_several(replayed: Replay) -> None:
    next(step.out for step in reversed(replayed.observed) if len(step.out) > 1).reverse()


@pytest.mark.parametrize(
    "name", ["session-count.1", "timestamp-fail-on-invalid.1", "versioned-table-to-stream.1", "headers-aggregate.0"]
)
def test_the_trace_itself_passes(name: str) -> None:
    trace = load_trace(TRACES / f"{name}.json")
    check(trace, perfect(trace), "itself")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tumbling-count.1", lambda got: first_out(got).update(ts=-5), "out differs"),
        ("tumbling-count.1", lambda got: first_out(got)["key"].update(end=-5), "out differs"),
        ("headers-aggregate.0", lambda got: first_out(got).pop("headers"), "out differs"),
        ("word-count.1", reverse_the_last_of_several, "out differs"),
        ("stream-filter.1", lambda got: got.observed[-1].out.append({"topic": "out"}), "out differs"),
        ("stream-peek-foreach.1", lambda got: got.observed[0].effects.reverse(), "effects differs"),
        ("tumbling-count.1", lambda got: setattr(got.observed[0], "dropped", 7), "dropped differs"),
        ("stream-filter.1", lambda got: setattr(got.observed[3], "error", "Oops"), "error differs"),
        ("timestamp-fail-on-invalid.1", lambda got: setattr(got.observed[-1], "error", None), "error differs"),
        ("stream-filter.1", lambda got: got.observed.pop(), "steps were played"),
        ("tumbling-count.1", lambda got: got.contents.rows["counts"].pop(), "store counts at the end differs"),
        ("tumbling-count.1", lambda got: got.contents.timestamps["counts"].reverse(), "timestamps of store counts"),
        ("versioned-table-to-stream.1", lambda got: got.contents.versions["tab"].pop(), "versions in store tab"),
        ("tumbling-count.1", lambda got: setattr(got, "describe", "Topologies:"), "describe() differs"),
    ],
)
def test_a_change_is_found(name: str, change: Change, message: str) -> None:
    trace = load_trace(TRACES / f"{name}.json")
    replayed = perfect(trace)
    change(replayed)
    with pytest.raises(AssertionError) as found:
        check(trace, replayed, "a changed trace")
    assert str(found.value).startswith(f"{name} on a changed trace: ")
    assert message in str(found.value)


def test_drops_of_sessions_and_stream_stream_joins_are_advice() -> None:
    for name in ("session-count.1", "stream-stream-self-join.1", "suppress-window-close-session.1"):
        trace = load_trace(TRACES / f"{name}.json")
        replayed = perfect(trace)
        replayed.observed[0].dropped += 1
        check(trace, replayed, "itself")


def test_a_trace_without_a_registered_topology_fails() -> None:
    trace = Trace("unheard-of.0", {"topology": "unheard-of", "config": {}})
    with pytest.raises(AssertionError, match=r"unheard-of\.0: no topology is registered as 'unheard-of'"):
        build(trace)


def test_topologies_from_a_file_can_be_sent_to_a_process_that_has_no_such_file(tmp_path: Path) -> None:
    file = tmp_path / "more.py"
    file.write_text(
        "def helper():\n    return 'built'\n\nTOPOLOGIES = {'mine': lambda case: (helper(), case.config)}\n"
    )
    pickled = cloudpickle.dumps((load_topologies(file)["mine"], Case({"a": 1})))
    program = "import pickle, sys; f, case = pickle.load(sys.stdin.buffer); print(f(case))"
    path = os.pathsep.join(sys.path)
    sent = subprocess.run(
        [sys.executable, "-c", program], input=pickled, capture_output=True, check=True, env={"PYTHONPATH": path}
    )
    assert sent.stdout == b"('built', {'a': 1})\n"


def test_effects_of_every_pickled_copy_of_a_case_count() -> None:
    case = Case({})
    copied = cloudpickle.loads(cloudpickle.dumps(case))
    case.effect("one")
    copied.effect("two")
    assert case.take_effects() == ["one", "two"]
    assert case.take_effects() == []
