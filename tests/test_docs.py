"""Every public method is shown at work in a doctest of its own, and every public name says what it is.

Properties and fields need no doctest: their class's own shows them.
"""

import inspect
from collections.abc import Iterator

import pytest

import headwater
from headwater.dsl.cogrouped import SessionWindowedCogroupedKStream, WindowedCogroupedKStream
from headwater.dsl.split import Branches
from headwater.dsl.windowed import SessionWindowedKStream, WindowedKStream
from headwater.streams.context import ProcessorContext, Schedule
from headwater.streams.driver import InputTopic, OutputTopic
from headwater.streams.stores import KeyValues, Sessions, Versions, Windows

FLUENT = [
    headwater.StreamsBuilder,
    headwater.KStream,
    headwater.KTable,
    headwater.KGroupedStream,
    headwater.KGroupedTable,
    headwater.CogroupedKStream,
    headwater.Topology,
    Branches,
    WindowedKStream,
    SessionWindowedKStream,
    WindowedCogroupedKStream,
    SessionWindowedCogroupedKStream,
]
WINDOWS = [
    headwater.TimeWindows,
    headwater.SlidingWindows,
    headwater.SessionWindows,
    headwater.UnlimitedWindows,
    headwater.JoinWindows,
    headwater.Suppress,
    headwater.OnInvalid,
]
RUNNING = [
    headwater.Config,
    headwater.Processor,
    headwater.Record,
    headwater.TopologyTestDriver,
    InputTopic,
    OutputTopic,
    ProcessorContext,
    Schedule,
    KeyValues,
    Windows,
    Sessions,
    Versions,
]
# Steps, passes and the task call these; users have no reason to.
INTERNAL = {
    headwater.KTable: {"enable_old", "view"},
    headwater.TimeWindows: {"end", "starts"},
    headwater.UnlimitedWindows: {"end", "starts"},
    headwater.Topology: {"put_source", "put_processor", "put_sink", "put_shared_store", "put_store", "put_global_store"}
    | {"connect", "children", "groups", "is_global", "sources"},
    Schedule: {"run"},
}


def methods() -> Iterator[tuple[str, object]]:
    for kind in FLUENT + WINDOWS + RUNNING:
        for name, member in inspect.getmembers(kind, callable):
            if not name.startswith("_") and name not in INTERNAL.get(kind, ()):
                yield f"{kind.__name__}.{name}", member


@pytest.mark.parametrize(("name", "method"), [pytest.param(n, m, id=n) for n, m in methods()])
def test_every_method_has_a_doctest(name: str, method: object) -> None:
    text = inspect.getdoc(method) or ""
    assert ">>> " in text, f"{name} shows no example"


def test_every_internal_method_is_still_there() -> None:
    gone = [f"{kind.__name__}.{name}" for kind, names in INTERNAL.items() for name in names if not hasattr(kind, name)]
    assert not gone, f"no longer there, so no longer internal: {sorted(gone)}"


@pytest.mark.parametrize("name", headwater.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(headwater, name)), f"{name} has no docstring"
