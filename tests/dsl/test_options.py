"""Options of public methods: what is no switch, number, word, name or duration is refused by name, and never taken for
true or for another option."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import (
    Admin,
    Config,
    Consumer,
    JoinWindows,
    Json,
    KeyValue,
    OnInvalid,
    Processor,
    Session,
    StreamsBuilder,
    StreamsError,
    TimestampedKeyValue,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    Versioned,
    Window,
    run,
)

SECOND = timedelta(seconds=1)


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def consumer(folder: Path) -> Consumer:
    Admin(f"log://{folder}").create_topic("in")
    return Consumer(f"log://{folder}", "in", group="g")


def group(folder: Path) -> Admin:
    with consumer(folder) as there:
        there.poll()
    return Admin(f"log://{folder}")


# By class or function, method and option: how to give it. Options that may be left open say so.
SWITCHES: dict[tuple[str, str], Callable[[Any, Path], Any]] = {
    ("KeyValue", "memory"): lambda flag, at: KeyValue("s", memory=flag),
    ("KeyValue", "cached"): lambda flag, at: KeyValue("s", cached=flag),
    ("KeyValue", "changelog"): lambda flag, at: KeyValue("s", changelog=flag),
    ("TimestampedKeyValue", "memory"): lambda flag, at: TimestampedKeyValue("s", memory=flag),
    ("TimestampedKeyValue", "cached"): lambda flag, at: TimestampedKeyValue("s", cached=flag),
    ("TimestampedKeyValue", "changelog"): lambda flag, at: TimestampedKeyValue("s", changelog=flag),
    ("Versioned", "memory"): lambda flag, at: Versioned("s", retention=SECOND, memory=flag),
    ("Versioned", "cached"): lambda flag, at: Versioned("s", retention=SECOND, cached=flag),
    ("Versioned", "changelog"): lambda flag, at: Versioned("s", retention=SECOND, changelog=flag),
    ("Window", "memory"): lambda flag, at: Window("s", memory=flag),
    ("Window", "cached"): lambda flag, at: Window("s", cached=flag),
    ("Window", "changelog"): lambda flag, at: Window("s", changelog=flag),
    ("Window", "timestamped"): lambda flag, at: Window("s", timestamped=flag),
    ("Window", "duplicates"): lambda flag, at: Window("s", duplicates=flag),
    ("Session", "memory"): lambda flag, at: Session("s", memory=flag),
    ("Session", "cached"): lambda flag, at: Session("s", cached=flag),
    ("Session", "changelog"): lambda flag, at: Session("s", changelog=flag),
    ("Config", "exactly_once"): lambda flag, at: Config(exactly_once=flag),
    ("Config", "optimize"): lambda flag, at: Config(optimize=flag),
    ("TopologyTestDriver", "memory"): lambda flag, at: TopologyTestDriver(copying(), memory=flag),
    ("run", "block"): lambda flag, at: run(copying(), broker=f"log://{at}", block=flag),
    ("Admin.create_topic", "compact"): lambda flag, at: Admin(f"log://{at}").create_topic("t", compact=flag),
    ("Admin.create_topic", "exist_ok"): lambda flag, at: Admin(f"log://{at}").create_topic("t", exist_ok=flag),
    ("Admin.alter_topic", "compact"): lambda flag, at: group(at).alter_topic("in", compact=flag),
    ("Admin.reset_offsets", "dry_run"): lambda flag, at: group(at).reset_offsets("g", "earliest", dry_run=flag),
    ("Consumer.close", "commit"): lambda flag, at: consumer(at).close(commit=flag),
}
MAY_BE_OPEN = {"cached"} | {"compact"}


@pytest.mark.parametrize("option", SWITCHES, ids=".".join)
def test_what_is_neither_true_nor_false_is_refused(option: tuple[str, str], tmp_path: Path) -> None:
    wrong: list[Any] = ["no", "False", "", 0, 1, 0.0, [], ["x"], {}, {"retention.ms": "1"}, object()]
    if option[1] not in MAY_BE_OPEN:
        wrong.append(None)
    if option == ("Config", "optimize"):
        # No names are no optimizations.
        wrong = [flag for flag in wrong if flag not in ([], {})]
    for number, flag in enumerate(wrong):
        with pytest.raises(StreamsError, match=option[1]):
            SWITCHES[option](flag, tmp_path / str(number))


def public() -> dict[str, Any]:
    """What users call, by name: classes to make, their methods, functions."""
    found: dict[str, Any] = {}
    for name in headwater.__all__:
        thing = getattr(headwater, name)
        found[name] = thing
        if inspect.isclass(thing):
            parts = ((part, method) for part, method in inspect.getmembers(thing) if not part.startswith("_"))
            found |= {f"{name}.{part}": method for part, method in parts}
    return found


def test_no_switch_is_forgotten() -> None:
    # Made by others than users, who are given them.
    given = {"KStream", "KGroupedStream", "ProcessorContext", "KTable.enable_old"}
    switches = set()
    for name, thing in public().items():
        if name in given or not callable(thing):
            continue
        try:
            parameters = inspect.signature(thing).parameters.values()
        except ValueError:
            continue
        kinds = {parameter.name: str(parameter.annotation) for parameter in parameters}
        switches |= {(name, option) for option, kind in kinds.items() if "bool" in kind.split("Callable")[0]}
    assert switches == set(SWITCHES)


def wrong_name(name: Any) -> dict[str, Callable[[StreamsBuilder], Any]]:
    return {
        "filter": lambda b: b.stream("in").filter(lambda k, v: True, name=name),
        "process": lambda b: b.stream("in").process(Processor, name=name),
        "group_by_key": lambda b: b.stream("in").group_by_key(name=name),
        "group_by": lambda b: b.stream("in").group_by(lambda k, v: k, name=name),
        "repartition": lambda b: b.stream("in").repartition(name=name),
        "split": lambda b: b.stream("in").split(name=name),
        "branch": lambda b: b.stream("in").split().branch(lambda k, v: True, name=name),
        "default": lambda b: b.stream("in").split().default(name=name),
        "to": lambda b: b.stream("in").to("out", name=name),
        "table": lambda b: b.table("in", name=name),
        "stream": lambda b: b.stream("in", name=name),
        "stream join": lambda b: b.stream("a").join(b.stream("b"), lambda a, c: a, JoinWindows.of(SECOND), name=name),
        "table join": lambda b: b.stream("a").join(b.table("b"), lambda a, c: a, name=name),
        "tables join": lambda b: b.table("a").join(b.table("b"), lambda a, c: a, name=name),
        "foreign key": lambda b: b.table("a").join(b.table("b"), lambda a, c: a, foreign_key=lambda v: v, name=name),
        "print": lambda b: b.stream("in").print(label=name),
        "print file": lambda b: b.stream("in").print(file=name),
        "add_source": lambda b: Topology().add_source(name, "in"),
    }


@pytest.mark.parametrize("method", wrong_name(None))
@pytest.mark.parametrize("name", [5, b"x", ["x"], True, {}])
def test_what_is_no_text_is_no_name(method: str, name: Any) -> None:
    def build() -> None:
        builder = StreamsBuilder()
        wrong_name(name)[method](builder)
        builder.build()

    with pytest.raises(StreamsError, match="must be text"):
        build()


OTHERS: dict[str, tuple[Callable[[StreamsBuilder], Any], str]] = {
    "grace": (lambda b: b.stream("a").join(b.table("b"), lambda a, c: a, grace=5), "grace= must be a timedelta"),
    "negative grace": (
        lambda b: b.stream("a").join(b.table("b"), lambda a, c: a, grace=-SECOND),
        "grace= must not be negative",
    ),
    "serde of a join": (lambda b: b.stream("a").join(b.table("b"), lambda a, c: a, value=Json), "must be a serde"),
    "serde of a grouping": (lambda b: b.stream("a").group_by_key(key="text"), "must be a serde"),
    "partitions": (lambda b: b.stream("a").repartition(partitions=True), "at least 1"),
    "stores": (lambda b: b.stream("a").process(Processor, stores=5), "stores= takes"),
    "reset": (lambda b: b.stream("a", reset=True), "reset= must be"),
    "reset of a source": (lambda b: Topology().add_source("s", "t", reset="first"), "reset= must be"),
    "rule": (lambda b: OnInvalid("later"), 'must be "fail" or "skip"'),
    "duplicates of an aggregate": (
        lambda b: (
            b.stream("a").group_by_key().windowed_by(TimeWindows.of(SECOND)).count(store=Window("s", duplicates=True))
        ),
        "leave out duplicates",
    ),
    "a cache for versions": (lambda b: Versioned("s", retention=SECOND, cached=True), "versions are not cached"),
    "driver partitions": (lambda b: TopologyTestDriver(copying(), partitions=True), "partitions must be a number"),
    "driver now": (lambda b: TopologyTestDriver(copying(), now="0"), "now must be a number"),
    "names of optimizations": (lambda b: Config(optimize=[["self-join"]]), "optimize has no"),
    "handler": (lambda b: Config(on_processing_error=["skip"]), "on_processing_error must be"),
}


@pytest.mark.parametrize("option", OTHERS)
def test_other_options_are_refused_by_name(option: str) -> None:
    def build() -> None:
        builder = StreamsBuilder()
        OTHERS[option][0](builder)
        builder.build()

    with pytest.raises(StreamsError, match=OTHERS[option][1]):
        build()


def test_a_retention_that_is_no_duration_is_refused_and_not_left_out(tmp_path: Path) -> None:
    admin = Admin(f"log://{tmp_path}")
    for option in ({"retention": 5}, {"retention": "1h"}, {"segment": 5}, {"retention": -SECOND}):
        with pytest.raises(StreamsError, match=r"must (be a timedelta|not be negative)"):
            admin.create_topic("t", **option)
    assert admin.topics() == []


def test_a_store_is_not_shown_with_timestamps_for_a_text(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.table("in", store="s")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("k", 1, at=5)
        with pytest.raises(StreamsError, match="store 's': timestamps= must be True or False, but is 'no'"):
            driver.store("s").get("k", timestamps="no")
