"""The Processor API: every kind of store by hand, punctuators, named children, global stores, low-level topologies."""

import re
from typing import Any

from headwater import (
    KeyValue,
    Processor,
    Record,
    Session,
    Str,
    StreamsBuilder,
    TimestampedKeyValue,
    Topology,
    Versioned,
    Window,
    Windowed,
)
from tests.conformance.case import Case
from tests.conformance.chapters.registry import ms, plus, text
from tests.conformance.more_chapters.registry import (
    L,
    add,
    parts,
    times,
    topology,
    tumbling,
)


class Around(Processor):
    """Put each record into the window store, then forward the rows around its time."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("win")
        store.put(record.key, record.value, record.timestamp)
        rows = store.fetch(record.key, record.timestamp - 40, record.timestamp + 40)
        self.context.forward(record.replace(value=",".join(f"{value}@{window.start}" for window, value in rows)))


@topology
def processor_window_store(b: StreamsBuilder, case: Case) -> None:
    b.add_store(Window("win", size=ms(50), retention=ms(100)))
    b.stream("in").process(Around, stores=["win"]).to("out")


@topology
def processor_window_store_duplicates(b: StreamsBuilder, case: Case) -> None:
    b.add_store(Window("win", size=ms(50), retention=ms(100), duplicates=True))
    b.stream("in").process(Around, stores=["win"]).to("out")


class HandSessions(Processor):
    """Replace the sessions that contain the record's time by one that ends there."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("ses")
        at = record.timestamp
        for window, _ in store.fetch(record.key):
            if window.start <= at <= window.end:
                store.remove(window)
        if record.value is not None:
            store.put(Windowed(record.key, at - at % 20, at), record.value)
        rows = store.fetch(record.key)
        shown = ",".join(f"{value}[{window.start},{window.end}]" for window, value in rows)
        self.context.forward(record.replace(value=shown))


@topology
def processor_session_store(b: StreamsBuilder, case: Case) -> None:
    b.add_store(Session("ses", retention=ms(500)))
    b.stream("in").process(HandSessions, stores=["ses"]).to("out")


class Versions(Processor):
    """Put each record, then show the latest version, the one 30 ms before the record and the one at its time."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("ver")
        store.put(record.key, record.value, record.timestamp)
        found = [
            store.get(record.key),
            store.get(record.key, as_of=record.timestamp - 30),
            store.get(record.key, as_of=record.timestamp),
        ]
        self.context.forward(record.replace(value="|".join(self.show(version) for version in found)))

    def show(self, version: tuple[str, int, int | None] | None) -> str:
        if version is None:
            return "none"
        value, timestamp, valid_to = version
        return f"{value}@{timestamp}>{'-' if valid_to is None else valid_to}"


@topology
def processor_versioned_store(b: StreamsBuilder, case: Case) -> None:
    b.add_store(Versioned("ver", retention=ms(80)))
    b.stream("in").process(Versions, stores=["ver"]).to("out")


class Sums(Processor):
    """Sum the values of a key with the greatest timestamp; a 7 shows all rows first."""

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("st")
        if record.value is None:
            store.delete(record.key)
            return
        if record.value == 7:
            for key, (value, timestamp) in store.all(timestamps=True):
                self.context.forward(Record(key, value, timestamp))
        value, timestamp = store.get(record.key, timestamps=True) or (0, 0)
        value, timestamp = value + record.value, max(timestamp, record.timestamp)
        store.put(record.key, value, timestamp=timestamp)
        self.context.forward(record.replace(value=value, timestamp=timestamp))


@topology
def processor_timestamped_store(b: StreamsBuilder, case: Case) -> None:
    b.add_store(TimestampedKeyValue("st", value=L))
    b.stream("in", value=L).process(Sums, stores=["st"]).to("out", value=L)


class First(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        seen = self.context.store("seen")
        n = (seen.get(record.key) or 0) + 1
        seen.put(record.key, n)
        self.context.store("shared").put(record.key, record.value)
        numbered = record.replace(value=f"{text(record.value)}#{n}")
        self.context.forward(numbered)
        self.context.forward(numbered.replace(timestamp=record.timestamp + 5))


class Second(Processor):
    def process(self, record: Record) -> None:
        last = self.context.store("last")
        shared = self.context.store("shared").get(record.key)
        self.context.forward(record.replace(value=f"{text(shared)}<{record.value}<{text(last.get(record.key))}"))
        last.put(record.key, record.value)


@topology
def processor_chain(b: StreamsBuilder, case: Case) -> None:
    b.add_store(KeyValue("seen", value=L))
    b.add_store(KeyValue("shared"))
    b.add_store(KeyValue("last", memory=True))
    (
        b.stream("in")
        .process(First, stores=["seen", "shared"], name="first")
        .filter(lambda key, value: int(value.partition("#")[2]) % 3 != 0)
        .process(Second, stores=["shared", "last"], name="second")
        .to("out")
    )


class Clocks(Processor):
    """Schedule and cancel punctuators as the values say."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.clocks: dict[str, Any] = {}
        self.values = {"s": "", "w": ""}

    def process(self, record: Record) -> None:
        value = record.value
        if value is not None and re.fullmatch("[sw][0-9]+", value):
            kind = value[0]
            if kind in self.clocks:
                self.clocks[kind].cancel()
            self.values[kind] = value
            clock, f = ("stream-time", self.on_stream_time) if kind == "s" else ("wall-clock", self.on_wall_clock)
            self.clocks[kind] = self.context.schedule(ms(int(value[1:])), clock, f)
        elif value == "stop":
            for clock in self.clocks.values():
                clock.cancel()
        else:
            self.context.forward(record)

    def on_stream_time(self, timestamp: int) -> None:
        self.fire(self.values["s"], timestamp)

    def on_wall_clock(self, timestamp: int) -> None:
        self.fire(self.values["w"], timestamp)

    def fire(self, value: str, timestamp: int) -> None:
        self._case.effect(f"{value} {timestamp}")
        self.context.forward(Record("tick", f"{value} {timestamp}", timestamp))


@topology
def punctuators_rescheduled(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").process(lambda: Clocks(case)).to("out")


class Nested(Processor):
    """Punctuators that schedule and cancel punctuators."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.fired = [0, 0, 0, 0]
        self.inner: list[Any] = []
        self.walls = 0

    def init(self, context: Any) -> None:
        super().init(context)
        self.outer = context.schedule(ms(40), "stream-time", self.on_outer)
        context.schedule(ms(100), "wall-clock", self.on_wall)

    def on_wall(self, timestamp: int) -> None:
        self._case.effect(f"wall {timestamp}")
        self.walls += 1
        if self.walls == 4:
            self.outer.cancel()

    def on_outer(self, timestamp: int) -> None:
        self.tell(f"outer {timestamp}", timestamp)
        self.fired[0] += 1
        i = self.fired[0]
        if i <= 3:
            on_inner = (self.on_inner1, self.on_inner2, self.on_inner3)[i - 1]
            self.inner.append(self.context.schedule(ms(10 * i), "stream-time", on_inner))

    def on_inner1(self, timestamp: int) -> None:
        self.on_inner(1, timestamp)

    def on_inner2(self, timestamp: int) -> None:
        self.on_inner(2, timestamp)

    def on_inner3(self, timestamp: int) -> None:
        self.on_inner(3, timestamp)

    def on_inner(self, i: int, timestamp: int) -> None:
        self.tell(f"inner{i} {timestamp}", timestamp)
        self.fired[i] += 1
        if self.fired[i] == 2:
            self.inner[i - 1].cancel()

    def tell(self, said: str, timestamp: int) -> None:
        self._case.effect(said)
        self.context.forward(Record("p", said, timestamp))

    def process(self, record: Record) -> None:
        times = f"{self.context.stream_time}/{self.context.wall_clock}"
        self.context.forward(record.replace(value=f"{text(record.value)}@{times}"))


@topology
def punctuator_in_punctuator(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").process(lambda: Nested(case)).to("out")


class Router(Processor):
    def process(self, record: Record) -> None:
        if record.value is None:
            self.context.forward(record)
        else:
            self.context.forward(record, to="odds" if record.value % 2 else "evens")


@topology
def forward_to_named_children(b: StreamsBuilder, case: Case) -> None:
    routed = b.stream("in", value=L).process(Router, name="router")
    routed.map_values(times(2), name="evens").to("even", value=L)
    routed.map_values(times(10), name="odds").to("odd", value=L)
    routed.foreach(lambda key, value: case.effect(f"seen {text(key)}={text(value)}"), name="all")


class WordKeys(Processor):
    def process(self, record: Record) -> None:
        for i, word in enumerate(parts(record.value)):
            self.context.forward(record.replace(key=word, value=text(record.key), timestamp=record.timestamp + i))


@topology
def process_key_change_count(b: StreamsBuilder, case: Case) -> None:
    b.stream("in").process(WordKeys).group_by_key().count(store="counts").to_stream().to("out")


class Difference(Processor):
    """Forward by how much a value differs from the one before, now and 1000 ms later."""

    def process(self, record: Record) -> None:
        last = self.context.store("last")
        difference = record.replace(value=record.value - (last.get(record.key) or 0))
        self.context.forward(difference)
        self.context.forward(difference.replace(timestamp=record.timestamp + 1000))
        last.put(record.key, record.value)


@topology
def process_values_after_filter(b: StreamsBuilder, case: Case) -> None:
    b.add_store(KeyValue("last", value=L))
    (
        b.stream("in", value=L)
        .select_key(lambda key, value: None if value is None else f"k{value % 2}")
        .filter(lambda key, value: value is not None)
        .process_values(Difference, stores=["last"], name="diff")
        .group_by_key(name="grp", key=Str(), value=L)
        .windowed_by(tumbling(50, 1000))
        .reduce(add, store="sum")
        .to_stream()
        .to("out")
    )


class Facts(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        store = self.context.store("glo")
        old = store.get(record.key.upper())
        store.put(
            record.key.upper(), None if record.value is None else f"{record.value}/{'none' if old is None else old}"
        )


class Ask(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        found = self.context.store("glo").get(record.key.upper())
        self.context.forward(record.replace(value=f"{text(record.value)}+{'none' if found is None else found}"))


@topology
def global_store_processor(b: StreamsBuilder, case: Case) -> None:
    b.add_global_store(KeyValue("glo"), "facts", Facts)
    b.stream("in").process(Ask).to("out")


@topology
def two_global_tables(b: StreamsBuilder, case: Case) -> None:
    facts = b.global_table("facts", store="glo")
    more = b.global_table("more")
    (
        b.stream("in")
        .left_join(facts, plus, select=lambda key, value: key)
        .join(more, lambda value, found: f"{value}*{found}", select=lambda key, value: value[0])
        .to("out")
    )


class LowFirst(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        self.context.store("win").put(record.key, record.value, record.timestamp - record.timestamp % 100)
        self.context.forward(record)


class LowSecond(Processor):
    def process(self, record: Record) -> None:
        if record.key is None:
            return
        found = self.context.store("win").get(record.key, record.timestamp - record.timestamp % 100)
        numbers = self.context.store("n")
        n = (numbers.get(record.key) or 0) + 1
        numbers.put(record.key, n)
        self.context.forward(record.replace(value=f"{text(record.value)}/{'none' if found is None else found}/{n}"))


@topology
def low_level_many(b: StreamsBuilder, case: Case) -> Topology:
    strings = {"key": Str(), "value": Str()}
    built = Topology()
    built.add_source("S1", "in1", **strings)
    built.add_source("S2", "in2", "in3", **strings)
    built.add_processor("P1", LowFirst, "S1", "S2")
    built.add_processor("P2", LowSecond, "P1", "S2")
    built.add_store(Window("win", size=ms(100), retention=ms(1000), **strings), "P1", "P2")
    built.add_store(KeyValue("n", key=Str(), value=L), "P2")
    built.add_sink("K1", "out1", "P2", **strings)
    built.add_sink("K2", "out2", "P1", "S1", **strings)
    return built


class Counted(Processor):
    def process(self, record: Record) -> None:
        counts = self.context.store("c")
        n = (counts.get(text(record.key)) or 0) + 1
        counts.put(text(record.key), n)
        self.context.forward(record.replace(value=f"{text(record.value)}{n}"))


@topology
def low_level_two_subtopologies(b: StreamsBuilder, case: Case) -> Topology:
    strings = {"key": Str(), "value": Str()}
    built = Topology()
    built.add_source("A", "in", **strings)
    built.add_sink("M", "mid", "A", **strings)
    built.add_source("B", "mid", **strings)
    built.add_processor("C", Counted, "B")
    built.add_store(KeyValue("c", key=Str(), value=L, memory=True), "C")
    built.add_sink("D", "out", "C", **strings)
    built.add_source("E", "other", **strings)
    built.add_sink(
        "F", lambda key, value, context: "out" if value is not None and len(value) > 2 else "side", "E", **strings
    )
    return built


@topology
def pattern_source(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream(re.compile("in-[0-9]"))
        .map_values(lambda key, value: f"{text(key)}:{text(value)}")
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to("out")
    )


class Hold(Processor):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(60), "stream-time", self.release)

    def release(self, timestamp: int) -> None:
        held = self.context.store("held")
        for key, value in held.all():
            self.context.forward(Record(key, value, timestamp))
            held.delete(key)

    def process(self, record: Record) -> None:
        if record.key is not None:
            held = self.context.store("held")
            held.put(record.key, f"{held.get(record.key) or ''}{text(record.value)},")


class Beat(Processor):
    def __init__(self) -> None:
        self.n = 0

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(ms(30), "stream-time", self.beat)

    def beat(self, timestamp: int) -> None:
        self.context.forward(Record("beat", str(self.n), timestamp))

    def process(self, record: Record) -> None:
        self.n += 1
        self.context.forward(record)


@topology
def processor_schedule_forward_downstream(b: StreamsBuilder, case: Case) -> None:
    b.add_store(KeyValue("held"))
    (
        b.stream("in")
        .process(Hold, stores=["held"], name="hold")
        .map_values(lambda value: f"<{value}>")
        .process(Beat, name="again")
        .to("out")
    )
