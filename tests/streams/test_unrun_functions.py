"""Functions whose call does not run them (async, or with a yield): refused by name when the topology is built. Plain
ones that return a coroutine or a generator: an error at the record."""

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from headwater import (
    Config,
    JoinWindows,
    KeyValue,
    KStream,
    OnInvalid,
    Processor,
    Record,
    Serde,
    SessionWindows,
    Str,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyError,
    TopologyTestDriver,
)

SECOND = timedelta(seconds=1)


async def waits(*args: Any) -> None: ...


async def waits_and_yields(*args: Any) -> AsyncIterator[int]:
    yield 1


def yields(*args: Any) -> Iterator[int]:
    yield 1


class Waits:
    async def __call__(self, *args: Any) -> None: ...

    async def method(self, *args: Any) -> None: ...


def logged(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def inner(*args: Any) -> Any:
        return f(*args)

    return inner


UNRUN = {
    "async": waits,
    "async generator": waits_and_yields,
    "generator": yields,
    "object": Waits(),
    "bound method": Waits().method,
    "partial": functools.partial(waits),
    "partial of a partial": functools.partial(functools.partial(yields)),
    "cached": functools.lru_cache(waits),
    "decorated": logged(waits),
    "twice decorated": logged(logged(waits)),
    "partial of a decorated method": functools.partial(logged(Waits().method)),
}


Use = Callable[[StreamsBuilder, KStream, Any], Any]
USES: dict[str, Use] = {
    "filter": lambda b, s, f: s.filter(f),
    "filter_not": lambda b, s, f: s.filter_not(f),
    "map": lambda b, s, f: s.map(f),
    "map_values": lambda b, s, f: s.map_values(f),
    "select_key": lambda b, s, f: s.select_key(f),
    "peek": lambda b, s, f: s.peek(f),
    "foreach": lambda b, s, f: s.foreach(f),
    "branch": lambda b, s, f: s.split().branch(f).no_default(),
    "branch to=": lambda b, s, f: s.split().branch(lambda k, v: True, to=f).no_default(),
    "to": lambda b, s, f: s.to(f),
    "partitioner": lambda b, s, f: s.to("out", partitioner=f),
    "repartition": lambda b, s, f: s.repartition(partitioner=f),
    "group_by": lambda b, s, f: s.group_by(f).count(),
    "reduce": lambda b, s, f: s.group_by_key().reduce(f),
    "aggregate init": lambda b, s, f: s.group_by_key().aggregate(f, lambda k, v, a: a),
    "aggregate": lambda b, s, f: s.group_by_key().aggregate(int, f),
    "merge": lambda b, s, f: (
        s.group_by_key().windowed_by(SessionWindows.of(SECOND)).aggregate(int, lambda k, v, a: a, merge=f)
    ),
    "cogroup": lambda b, s, f: s.group_by_key().cogroup(f).aggregate(int),
    "stream join": lambda b, s, f: s.join(b.stream("other"), f, JoinWindows.of(SECOND)),
    "table join": lambda b, s, f: s.join(b.table("other"), f),
    "global join": lambda b, s, f: s.join(b.global_table("other"), lambda a, c: a, select=f),
    "table filter": lambda b, s, f: b.table("other").filter(f),
    "table map_values": lambda b, s, f: b.table("other").map_values(f),
    "table group_by": lambda b, s, f: b.table("other").group_by(f).count(),
    "table adder": lambda b, s, f: b.table("other").group_by(lambda k, v: (k, v)).aggregate(int, f, lambda k, v, a: a),
    "table subtractor": lambda b, s, f: b.table("other").group_by(lambda k, v: (k, v)).reduce(lambda a, v: a, f),
    "foreign key": lambda b, s, f: b.table("other").join(b.table("third"), lambda a, c: a, foreign_key=f),
    "timestamp": lambda b, s, f: b.stream("other", timestamp=f),
    "OnInvalid": lambda b, s, f: b.stream("other", timestamp=OnInvalid.skip(f)),
    "supplier": lambda b, s, f: s.process(f),
    "global store's supplier": lambda b, s, f: b.add_global_store(KeyValue("g"), "g", f),
    "handler": lambda b, s, f: Config(on_processing_error=f),
    "topology timestamp": lambda b, s, f: Topology().add_source("s", "t", timestamp=f),
    "topology supplier": lambda b, s, f: Topology().add_source("s", "t").add_processor("p", f, "s"),
    "topology topic": lambda b, s, f: Topology().add_source("s", "t").add_sink("o", f, "s"),
    "topology partitioner": lambda b, s, f: Topology().add_source("s", "t").add_sink("o", "o", "s", partitioner=f),
}


@pytest.mark.parametrize("use", USES)
def test_a_function_that_a_call_does_not_run_is_refused_wherever_one_is_taken(use: str) -> None:
    def build(f: Any) -> None:
        builder = StreamsBuilder(key=Str(), value=Str())
        USES[use](builder, builder.stream("in"), f)
        builder.build()

    for kind, f in UNRUN.items():
        with pytest.raises(TopologyError, match=r"test_unrun_functions:\d+: the callable never runs") as refused:
            build(f)
        assert re.search("make it a plain function|return the result instead", str(refused.value)), kind


def test_flat_map_takes_generators_and_no_coroutines() -> None:
    def words(key: str, value: str) -> Iterator[tuple[str, str]]:
        for word in value.split():
            yield word, word

    def letters(value: str) -> Iterator[str]:
        yield from value

    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").flat_map(words).flat_map_values(letters).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("k", "ab c", at=0)
        assert [(r.key, r.value) for r in driver.output("out").read_all()] == [("ab", "a"), ("ab", "b"), ("c", "c")]
    for f in (waits, waits_and_yields):
        builder = StreamsBuilder()
        builder.stream("in").flat_map(f)
        builder.stream("in2").flat_map_values(f)
        with pytest.raises(TopologyError, match=r"(?s)2 faults.*never runs.*never runs"):
            builder.build()


class Forwards(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)


class AsyncProcess(Processor):
    async def process(self, record: Record) -> None:
        self.context.forward(record)


class YieldingProcess(Processor):
    def process(self, record: Record) -> Iterator[Record]:
        yield record


class AsyncInit(Forwards):
    async def init(self, context: Any) -> None:
        self.context = context


class AsyncClose(Forwards):
    async def close(self) -> None:
        ...


class Inherits(AsyncProcess): ...


class Decorated(Forwards):
    process = logged(AsyncProcess.process)


class SetLater(Forwards):
    def __init__(self) -> None:
        self.process = waits


PROCESSORS = {
    AsyncProcess: r"AsyncProcess\.process\(\) never runs: it is async",
    YieldingProcess: r"YieldingProcess\.process\(\) never runs: it has a yield.*forward\(\)",
    AsyncInit: r"AsyncInit\.init\(\) never runs: it is async",
    AsyncClose: r"AsyncClose\.close\(\) never runs: it is async",
    Inherits: r"Inherits\.process\(\) never runs: it is async",
    Decorated: r"Decorated\.process\(\) never runs: it decorates an async",
}


@pytest.mark.parametrize("kind", PROCESSORS, ids=lambda kind: kind.__name__)
def test_a_processor_with_a_method_that_a_call_does_not_run_is_refused(kind: type[Processor]) -> None:
    named = rf"mine.*test_unrun_functions:\d+: {PROCESSORS[kind]}"
    for supplier in (kind, lambda: kind()):
        for step in ("process", "process_values"):
            builder = StreamsBuilder(key=Str(), value=Str())
            getattr(builder.stream("in"), step)(supplier, name="mine")
            with pytest.raises(TopologyError, match=named):
                builder.build()
        with pytest.raises(TopologyError, match=named):
            Topology().add_source("s", "in").add_processor("mine", supplier, "s")
        with pytest.raises(TopologyError, match=named):
            StreamsBuilder().add_global_store(KeyValue("g"), "g", supplier, name="mine").build()


def test_a_processor_that_shows_only_when_made_that_it_is_async_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"process\(\) never runs"):
        Topology().add_source("s", "in").add_processor("mine", lambda: SetLater(), "s")
    # The class itself shows nothing, and what a supplier makes may change: the task looks again.
    topology = Topology().add_source("s", "in").add_processor("mine", SetLater, "s")
    with pytest.raises(StreamsError, match=r"step 'mine'.*process\(\) never runs"):
        TopologyTestDriver(topology)


class Returns(Processor):
    def process(self, record: Record) -> Any:
        return waits()


class ReturnsGenerator(Processor):
    def process(self, record: Record) -> Any:
        return yields()


PLAIN: dict[str, Callable[[KStream], Any]] = {
    "process": lambda s: s.process(Returns).to("out"),
    "process, a generator": lambda s: s.process(ReturnsGenerator).to("out"),
    "process_values": lambda s: s.process_values(Returns).to("out"),
    "filter": lambda s: s.filter(lambda k, v: waits()).to("out"),
    "filter_not": lambda s: s.filter_not(lambda k, v: waits()).to("out"),
    "branch": lambda s: s.split().branch(lambda k, v: yields(), to=lambda b: b.to("out")).no_default(),
    "peek": lambda s: s.peek(lambda k, v: waits_and_yields()).to("out"),
    "foreach": lambda s: (s.foreach(lambda k, v: (n for n in [1])), s.filter(lambda k, v: False).to("out")),
    "table filter": lambda s: s.to_table().filter(lambda k, v: waits()).to_stream().to("out"),
    "stored": lambda s: s.group_by_key().aggregate(str, lambda k, v, a: yields()).to_stream().to("out"),
}


@pytest.mark.parametrize("use", PLAIN)
def test_a_plain_function_that_returns_a_coroutine_or_a_generator_fails_on_the_record(use: str) -> None:
    for config in (Config("app"), Config("app", on_processing_error="skip", on_production_error="skip")):
        builder = StreamsBuilder(key=Str(), value=Str())
        PLAIN[use](builder.stream("in"))
        with TopologyTestDriver(builder.build(), config) as driver:
            if config.on_processing_error == "fail":
                with pytest.raises(StreamsError, match=r"step .*in-0@0.*(coroutine|generator)"):
                    driver.input("in").send("k", "v", at=0)
            else:
                driver.input("in").send("k", "v", at=0)
                assert driver.output("out").read_all() == []
                assert driver.metrics()["dropped-records-total"] == 1


@pytest.mark.parametrize("f", [waits, yields, lambda time: waits()])
def test_a_punctuator_that_never_runs_is_an_error(f: Any) -> None:
    class Ticks(Forwards):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(SECOND, "stream-time", f)

    topology = Topology().add_source("s", "in").add_processor("ticks", Ticks, "s")
    with (
        pytest.raises(StreamsError, match=r"step 'ticks'.*(never runs|returned a coroutine)"),
        TopologyTestDriver(topology) as driver,
    ):
        driver.input("in").send("k", "v", at=0)


def test_a_serde_that_never_runs_is_refused() -> None:
    class Later(Serde):
        async def decode(self, data: bytes) -> Any:
            return data

        def encode(self, value: Any) -> bytes:
            return bytes(value)

    builder = StreamsBuilder()
    builder.stream("in", value=Later())
    with pytest.raises(TopologyError, match=r"value= .*Later\.decode\(\) never runs: it is async"):
        builder.build()
    with pytest.raises(TopologyError, match=r"Later\.decode\(\) never runs"):
        Topology().add_source("s", "in", key=Later())
    with pytest.raises(TopologyError, match=r"Later\.decode\(\) never runs"):
        KeyValue("s", value=Later())


def test_the_remedies_work() -> None:
    async def double(value: str) -> str:
        await asyncio.sleep(0)
        return value * 2

    def to_its_end(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def inner(*args: Any) -> Any:
            return asyncio.run(f(*args))

        return inner

    def listed(f: Callable[..., Iterator[Any]]) -> Callable[..., list[Any]]:
        @functools.wraps(f)
        def inner(*args: Any) -> list[Any]:
            return list(f(*args))

        return inner

    @listed
    def letters(value: str) -> Iterator[str]:
        yield from value

    run = to_its_end(double)
    builder = StreamsBuilder(key=Str(), value=Str())
    builder.stream("in").map_values(lambda value: run(value)).map_values(letters).map_values("-".join).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").send("k", "ab", at=0)
        assert [record.value for record in driver.output("out").read_all()] == ["a-b-a-b"]
