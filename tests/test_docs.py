"""Every public class and method is shown at work in a doctest, and says in its first line what comes out."""

import inspect
from collections.abc import Iterator

import pytest

import headwater
from headwater.dsl.cogrouped import SessionWindowedCogroupedKStream, WindowedCogroupedKStream
from headwater.dsl.split import Branches
from headwater.dsl.windowed import SessionWindowedKStream, WindowedKStream

FLUENT = [
    headwater.StreamsBuilder,
    headwater.KStream,
    headwater.KTable,
    headwater.KGroupedStream,
    headwater.KGroupedTable,
    headwater.CogroupedKStream,
    headwater.TopologyTestDriver,
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
# Steps draw on these; users have no reason to call them.
INTERNAL = {"add", "check", "collect", "copartition", "fault", "keyed", "materialized", "named", "new_name"}
INTERNAL |= {"note_unnamed", "suffixed", "add_internal_topic", "view", "enable_old", "end", "starts"}


def methods() -> Iterator[tuple[str, object]]:
    for kind in FLUENT + WINDOWS:
        for name, member in inspect.getmembers(kind):
            repeats = kind is headwater.StreamsBuilder and name == "repartition"
            if name.startswith("_") or name in INTERNAL or repeats or not (callable(member)):
                continue
            yield f"{kind.__name__}.{name}", member


@pytest.mark.parametrize(("name", "method"), [pytest.param(n, m, id=n) for n, m in methods()])
def test_every_method_has_a_doctest(name: str, method: object) -> None:
    text = inspect.getdoc(method) or ""
    assert ">>> " in text, f"{name} shows no example"


@pytest.mark.parametrize("name", headwater.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(headwater, name)), f"{name} has no docstring"
