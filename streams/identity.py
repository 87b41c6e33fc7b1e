"""What an application is, as far as its state depends on it: its stores, its repartition topics, and which sub-topology
reads what. It owns that record, what a new topology must have in common with it, and under which names rows, topics and
tasks are kept when steps or stores have got other names. Where the record is kept is the back ends' choice.

A store is compared by its name, or by the one that `Config(renamed=…)` gives. Its kind, serdes, windows and retention
must be the same; a retention may become longer. A new store starts empty. A store that is gone is kept aside, with its
rows, and cannot come back: it has missed what happened meanwhile. A sub-topology is known by its stores and by what it
reads, never by its number, which shifts with every step that is added before it.

Nothing here reads or writes: `compare` returns what fits, or raises a TopologyError with everything that does not.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import hashlib
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from headwater.dsl.config import Config
from headwater.dsl.serde import Json, Serde
from headwater.dsl.topology import ProcessorNode, Sink, Source, StoreSpec, Topology
from headwater.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from headwater.errors import TopologyError

__all__ = [
    "Fit",
    "Identity",
    "Part",
    "Repartition",
    "StoreIdentity",
    "adopted",
    "compare",
    "first",
    "from_description",
    "identity_of",
    "serde_name",
    "with_kept_stores",
    "without_unused",
]

_RESET = "reset the application to begin anew (headwater reset)"


class StoreIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A store: what its rows look like, and the name they are kept under if it is not its own.

    A kind of "" is not known: the record was made from what an earlier version of Headwater had left.
    """

    kind: str
    key: str = ""
    value: str = ""
    windows: str = ""
    retention_ms: int = 0
    changelog: str = ""  # "own", "none" or the topic that serves as one
    kept: str = ""
    formerly: tuple[str, ...] = ()  # names that an earlier version kept its steps' memory under


class Repartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repartition topic: its partitions (0: not known), and the name it has outside if it is not its own."""

    partitions: int
    kept: str = ""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sub-topology: the number in its tasks' ids, the topics it reads with their partitions, and its stores.

    Partitions of 0 are not known. `tasks` is how many tasks it has.
    """

    number: int
    topics: dict[str, int]
    stores: tuple[str, ...] = ()
    tasks: int = 0
    gone: bool = False


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an application is; `unused` are stores that it no longer has, whose rows are still there."""

    app_id: str
    stores: dict[str, StoreIdentity] = {}
    topics: dict[str, Repartition] = {}
    parts: tuple[Part, ...] = ()
    unused: dict[str, StoreIdentity] = {}
    unused_topics: dict[str, Repartition] = {}
    spent: tuple[str, ...] = ()  # names under which rows may still lie about that nobody must find

    @property
    def fingerprint(self) -> str:
        """What two workers must have in common to run side by side; partitions are no part of it, as topics may grow
        where there is no state."""
        parts = sorted((part.number, sorted(part.topics), part.stores) for part in self.parts if not part.gone)
        topics = sorted((name, topic.kept) for name, topic in self.topics.items())
        told = msgspec.json.encode([self.app_id, sorted(self.stores.items()), topics, parts])
        return hashlib.sha256(told).hexdigest()


@dataclass(frozen=True)
class Fit:
    """What a topology has in common with a record: the record to keep from now on, and the stores that are new, gone
    and renamed (old name, new name)."""

    identity: Identity
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


# ---- what a topology is ------------------------------------------------------------------------------------------


def identity_of(
    topology: Topology, config: Config, partitions: Mapping[str, int], *, with_globals: bool = False
) -> Identity:
    """What a topology is, on topics with these numbers of partitions (by the names outside, as in a Plan).

    With `with_globals`, global stores are among the stores: where their rows are kept and not read again at each start.

    >>> from headwater import Config, StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> _ = builder.stream("words").group_by_key().count(store="counts")
    >>> identity = identity_of(builder.build(), Config("app"), {"words": 4})
    >>> identity.stores["counts"].kind, identity.stores["counts"].value, identity.parts[0].tasks
    ('timestamped', 'Int64', 4)
    """
    internal = topology.internal_topics

    def width(topic: str) -> int:
        return partitions.get(f"{config.app_id}-{topic}" if topic in internal else topic, 0)

    parts = []
    for number, group in enumerate(topology.groups()):
        if topology.is_global(group):
            continue
        nodes = [topology.nodes[name] for name in group]
        sources = [node for node in nodes if isinstance(node, Source)]
        names = [topic for s in sources for topic in (s.topics if s.pattern is None else (s.pattern.pattern,))]
        stores = {store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores}
        topics = {topic: width(topic) for topic in sorted(names)}
        parts.append(Part(number, topics, tuple(sorted(stores)), max(topics.values(), default=0)))
    windows = {
        node.op.store: _windows(node.op.windows)  # type: ignore[attr-defined]  # as just asked
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and hasattr(node.op, "windows") and getattr(node.op, "store", None)
    }
    used = {store for part in parts for store in part.stores}
    kept = {name: spec for name, spec in topology.stores.items() if name in used}
    if with_globals:
        kept |= topology.global_stores
    return Identity(
        config.app_id,
        {
            name: _store(spec, windows.get(name), topology.source_changelogs.get(name))
            for name, spec in sorted(kept.items())
        },
        {topic: Repartition(width(topic)) for topic in sorted(internal)},
        tuple(parts),
    )


def _store(spec: StoreSpec, windows: str | None, source: str | None) -> StoreIdentity:
    words: list[str] = [spec.kind]
    words += ["timestamped"] if spec.kind == "window" and spec.timestamped else []
    words += ["with duplicates"] if spec.duplicates else []
    words += ["emitted on close"] if spec.on_close else []
    value = serde_name(spec.value)
    if spec.other_value is not None:
        value += f" and {serde_name(spec.other_value)}"
    if windows is None and spec.kind == "window":
        windows = f"{spec.size_ms} ms"
    return StoreIdentity(
        ", ".join(words),
        serde_name(spec.key),
        value,
        windows or "",
        # What a buffer holds back is no promise to keep anything.
        spec.retention_ms if spec.kind in ("window", "session", "versioned") else 0,
        source or ("own" if spec.changelog else "none"),
    )


def _windows(windows: Any) -> str:
    """Which windows they are; grace is no part of it."""
    match windows:
        case TimeWindows() if type(windows) is TimeWindows:
            advance = "" if windows.advance_ms == windows.size_ms else f" every {windows.advance_ms} ms"
            return f"{windows.size_ms} ms{advance}"
        case UnlimitedWindows():
            return f"unlimited from {windows.start_ms}"
        case SlidingWindows():
            return f"sliding within {windows.difference_ms} ms"
        case SessionWindows():
            return f"sessions with a gap of {windows.gap_ms} ms"
        case JoinWindows():
            return f"{windows.before_ms} ms before to {windows.after_ms} ms after"
    return serde_name(windows)


def serde_name(serde: Any) -> str:
    """A serde in words that stay the same from one run to the next: its class and its parameters.

    The module of a class is left out: it is another one when a file is run as a script.

    >>> from headwater import Json, Str, TimeWindowed
    >>> from datetime import timedelta
    >>> serde_name(Json(type=list[int])), serde_name(TimeWindowed(Str(), timedelta(seconds=10)))
    ('Json(list[int])', 'TimeWindowed(Str, 10000)')
    """
    kind = _class_name(type(serde))
    if isinstance(serde, Json):
        return kind if serde.type is None else f"{kind}({_type_name(serde.type)})"
    if not dataclasses.is_dataclass(serde):
        return kind
    given = [_value_name(getattr(serde, field.name)) for field in dataclasses.fields(serde) if field.compare]
    return f"{kind}({', '.join(given)})" if given else kind


def _value_name(value: Any) -> str:
    if isinstance(value, Serde):
        return serde_name(value)
    if isinstance(value, str | bytes) and len(value) > 40:
        data = value.encode() if isinstance(value, str) else value
        return f"{type(value).__name__} {hashlib.sha256(data).hexdigest()[:16]}"
    if value is None or isinstance(value, bool | int | float | str | bytes | timedelta):
        return repr(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value_name, value))}]"
    if isinstance(value, Mapping):
        return _value_name(sorted((str(name), _value_name(given)) for name, given in value.items()))
    if isinstance(value, type) or typing.get_args(value):
        return _type_name(value)
    return _class_name(value if callable(value) and hasattr(value, "__qualname__") else type(value))


def _class_name(kind: Any) -> str:
    return str(kind.__qualname__).rpartition("<locals>.")[2]


def _type_name(kind: Any) -> str:
    args = typing.get_args(kind)
    if args:
        origin = typing.get_origin(kind)
        name = getattr(origin, "__qualname__", None) or str(origin)
        return f"{name}[{', '.join(map(_type_name, args))}]"
    return _class_name(kind) if hasattr(kind, "__qualname__") else repr(kind)


# ---- what fits ---------------------------------------------------------------------------------------------------


def first(now: Identity) -> Fit:
    """What fits where there is nothing yet: all of it."""
    return Fit(now, tuple(sorted(now.stores)))


def compare(
    before: Identity, now: Identity, renamed: Mapping[str, str | None] | None = None, *, changelogs: bool = False
) -> Fit:
    """What a topology has in common with the record of the one before it; a TopologyError with all that does not fit.

    With `changelogs`, a store that goes on must also be read back from where it was.

    >>> old = Identity("app", {"counts": StoreIdentity("timestamped", "Str", "Int64")})
    >>> new = Identity("app", {"totals": StoreIdentity("timestamped", "Str", "Int64")})
    >>> compare(old, new, {"counts": "totals"}).identity.stores["totals"].kept
    'counts'
    >>> compare(old, Identity("app", {"counts": StoreIdentity("timestamped", "Str", "Float64")}))
    Traceback (most recent call last):
    headwater.errors.TopologyError: The topology has 1 fault:
      1. store 'counts': its value serde was Int64 and is Float64, and its rows cannot be read so: give the store \
another name, to start with an empty one, or reset the application to begin anew (headwater reset)
    """
    return _Comparison(before, now, dict(renamed or {}), changelogs).fit()


class _Comparison:
    def __init__(self, before: Identity, now: Identity, renamed: Mapping[str, str | None], changelogs: bool) -> None:
        self.before = before
        self.now = now
        self.renamed = renamed
        self.changelogs = changelogs
        self.faults: list[str] = []

    def fit(self) -> Fit:
        before, now = self.before, self.now
        self._check_renamed()
        stores = self._matched(before.stores, now.stores, {})
        for name, old in stores.items():
            self._check_store(name, old)
        for name in now.stores:
            if name not in stores and name in before.unused:
                self.faults.append(
                    f"store {name!r} was taken out of the application and has missed what happened since: delete its "
                    f"old rows to start with an empty one (headwater reset --unused), or give it another name"
                )
        derived = {f"{old}-repartition": f"{name}-repartition" for name, old in stores.items() if name != old}
        topics = self._matched(before.topics, now.topics, derived)
        self._check_alike(stores, topics)
        for name, topic in topics.items():
            was, wanted = before.topics[topic].partitions, now.topics[name].partitions
            if was and wanted and was != wanted:
                self.faults.append(
                    f"repartition topic {name!r} has {was} partitions, but the topology needs {wanted}, and keys would "
                    f"go to others: read topics with as many partitions as before, or {_RESET}"
                )
        parts = self._matched_parts(stores, topics)
        if self.faults:
            raise TopologyError(self.faults)
        return self._result(stores, topics, parts)

    # ---- names -------------------------------------------------------------------------------------------------

    def _check_renamed(self) -> None:
        before, now = self.before, self.now
        targets = set(self.renamed.values())
        was = before.stores.keys() | before.topics.keys()
        there = now.stores.keys() | now.topics.keys()
        for old, new in self.renamed.items():
            if new is not None and new not in there:
                self.faults.append(
                    f"renamed: {old!r} is to become {new!r}, but the topology has no such store or repartition topic"
                )
            elif old in was and old in there and old not in targets:
                self.faults.append(f"renamed: {old!r} is still in the topology: leave it out, or rename it there")
            elif old in was and new in was and new not in self.renamed:
                self.faults.append(
                    f"renamed: {old!r} is to become {new!r}, which is another one that has been there already"
                )
            elif new is not None and old in before.unused and new not in before.stores:
                self.faults.append(
                    f"renamed: store {old!r} was taken out of the application and has missed what happened since: "
                    f"delete its old rows (headwater reset --unused) and leave it out here; {new!r} starts empty"
                )

    def _matched(self, before: Mapping[str, Any], now: Mapping[str, Any], derived: Mapping[str, str]) -> dict[str, str]:
        """The old name of each that was there before."""
        renamed = {**{old: new for old, new in derived.items() if old not in now}, **self.renamed}
        found = {name: name for name in now if name in before and name not in renamed}
        found |= {new: old for old, new in renamed.items() if new is not None and new in now and old in before}
        return dict(sorted(found.items()))

    def _check_alike(self, stores: Mapping[str, str], topics: Mapping[str, str]) -> None:
        """Refuse to guess: one that is gone and one that is new and like it may be the same under another name."""
        before, now = self.before, self.now
        pairs: dict[str, str] = {}

        def look(kind: str, old: Iterable[str], new: Iterable[str], alike: Callable[[str, str], bool]) -> None:
            left = list(new)
            for name in old:
                found = next((other for other in left if alike(name, other)), None)
                if found is not None:
                    left.remove(found)
                    pairs[name] = found
                    where.append(f"{kind} {name!r} is gone and {found!r}, which is new, is like it")

        where: list[str] = []
        gone = [name for name in before.stores if name not in stores.values() and name not in self.renamed]
        new = [name for name in now.stores if name not in stores and name not in before.unused]
        look("store", gone, new, lambda a, b: _alike(before.stores[a], now.stores[b]))
        lost = [name for name in before.topics if name not in topics.values() and name not in self.renamed]
        derived = {f"{old}-repartition": f"{found}-repartition" for old, found in pairs.items()}
        lost = [name for name in lost if derived.get(name) not in now.topics]
        look(
            "repartition topic",
            lost,
            [name for name in now.topics if name not in topics and name not in derived.values()],
            lambda a, b: _shape(a) == _shape(b) or self._fed(a, before, stores) & self._fed(b, now, None) != set(),
        )
        if pairs:
            keep = ", ".join(f'"{old}": "{name}"' for old, name in pairs.items())
            drop = ", ".join(f'"{old}": None' for old in pairs)
            self.faults.append(
                f"{'; '.join(where)}. Names with a number shift when a step is added before them. If it is the same "
                f"under another name: Config(renamed={{{keep}}}). If it is another one, which starts empty: "
                f"Config(renamed={{{drop}}})"
            )

    @staticmethod
    def _fed(topic: str, identity: Identity, stores: Mapping[str, str] | None) -> set[str]:
        """The stores, by their names now, of the sub-topology that reads a topic."""
        names = {store for part in identity.parts if topic in part.topics for store in part.stores}
        return names if stores is None else {name for name, old in stores.items() if old in names}

    # ---- stores ------------------------------------------------------------------------------------------------

    def _check_store(self, name: str, old: str) -> None:
        was, wanted = self.before.stores[old], self.now.stores[name]
        if not was.kind:
            return
        where = f"store {name!r}" if name == old else f"store {name!r} (it was {old!r})"
        remedy = f"give the store another name, to start with an empty one, or {_RESET}"
        for what, a, b in (
            ("kind", was.kind, wanted.kind),
            ("key serde", was.key, wanted.key),
            ("value serde", was.value, wanted.value),
            ("windows", was.windows, wanted.windows),
        ):
            if a != b:
                verb = "were" if what == "windows" else "was"
                also = "are" if what == "windows" else "is"
                self.faults.append(
                    f"{where}: its {what} {verb} {a or 'none'} and {also} {b or 'none'}, and its rows cannot be read "
                    f"so: {remedy}"
                )
        if wanted.retention_ms < was.retention_ms and was.windows == wanted.windows and was.kind == wanted.kind:
            self.faults.append(
                f"{where}: its retention was {was.retention_ms} ms and is {wanted.retention_ms} ms (windows and grace "
                f"count), and rows in between would be deleted: keep it at least as long, {remedy}"
            )
        if self.changelogs and was.changelog != wanted.changelog and wanted.changelog != "none":
            self.faults.append(
                f"{where}: its changelog was {_changelog(was.changelog)} and is {_changelog(wanted.changelog)}, which "
                f"does not have its rows: leave that as it was (changelog=, optimize=), {remedy}"
            )

    # ---- sub-topologies ----------------------------------------------------------------------------------------

    def _matched_parts(self, stores: Mapping[str, str], topics: Mapping[str, str]) -> dict[int, Part]:
        """The old one of each sub-topology that was there before, by the number it has now."""
        found: dict[int, Part] = {}
        claimed: dict[int, Part] = {}
        for part in self.now.parts:
            names = {topics.get(name, name) if name in self.now.topics else name for name in part.topics}
            kept = {stores[name] for name in part.stores if name in stores}
            old = [was for was in self.before.parts if kept & {*was.stores} or names & was.topics.keys()]
            if len(old) > 1:
                self.faults.append(
                    f"{_called(part)}: what was {' and '.join(map(_called, old))} is one sub-topology now, whose state "
                    f"and offsets cannot be put together: keep them apart, or {_RESET}"
                )
            elif old and old[0].number in claimed:
                self.faults.append(
                    f"{_called(old[0])}: it is now split into {_called(claimed[old[0].number])} and {_called(part)}, "
                    f"and its state and offsets cannot be: keep it together, or {_RESET}"
                )
            elif old:
                claimed[old[0].number] = part
                found[part.number] = old[0]
                if kept:
                    self._check_partitions(part, old[0], sorted(name for name in part.stores if name in stores), topics)
        return found

    def _check_partitions(self, part: Part, was: Part, stores: list[str], topics: Mapping[str, str]) -> None:
        said = f"state belongs to the partitions it was made in (store {', '.join(map(repr, stores))})"
        changed = False
        for name, count in part.topics.items():
            # Those of repartition topics are compared by themselves.
            before = 0 if name in self.now.topics else was.topics.get(name, 0)
            if before and count and before != count:
                changed = True
                self.faults.append(
                    f"topic {name!r} had {before} partitions and has {count}, but {said}, and keys would go to others: "
                    f"use a topic with {before}, or {_RESET}"
                )
        internal = any(
            name in self.now.topics and self.before.topics[topics[name]].partitions != self.now.topics[name].partitions
            for name in part.topics
            if name in topics
        )
        if was.tasks and part.tasks and was.tasks != part.tasks and not changed and not internal:
            self.faults.append(
                f"{_called(part)}: it had {was.tasks} tasks and now has {part.tasks}, one for each partition, but "
                f"{said}: read topics with {was.tasks} partitions, or {_RESET}"
            )

    # ---- the result --------------------------------------------------------------------------------------------

    def _result(self, stores: Mapping[str, str], topics: Mapping[str, str], parts: Mapping[int, Part]) -> Fit:
        before, now = self.before, self.now
        gone = {name: old for name, old in before.stores.items() if name not in stores.values()}
        lost = {name: old for name, old in before.topics.items() if name not in topics.values()}
        # A topic that is left with the one who is gone, and back, is the same: it may still have records.
        unused = {name: _kept(name, old) for name, old in {**before.unused, **gone}.items()}
        unused_topics = {name: _kept(name, old) for name, old in {**before.unused_topics, **lost}.items()}
        kept = _names(before.stores, now.stores, stores, unused, spent=before.spent)
        outside = _names(before.topics, now.topics, topics, unused_topics, back=True)
        numbers = {part.number for part in before.parts}
        numbered = []
        for part in now.parts:
            old = parts.get(part.number)
            number = old.number if old is not None else next(n for n in range(10**6) if n not in numbers)
            numbers.add(number)
            numbered.append(msgspec.structs.replace(part, number=number))
        taken_up = {old.number for old in parts.values()}
        left = [
            msgspec.structs.replace(part, gone=True, stores=tuple(s for s in part.stores if s in unused))
            for part in before.parts
            if part.number not in taken_up
        ]
        identity = Identity(
            now.app_id,
            {
                name: msgspec.structs.replace(
                    store, kept=kept[name], formerly=before.stores[stores[name]].formerly if name in stores else ()
                )
                for name, store in now.stores.items()
            },
            {name: msgspec.structs.replace(topic, kept=outside[name]) for name, topic in now.topics.items()},
            (*numbered, *left),
            unused,
            {name: topic for name, topic in unused_topics.items() if topic.kept not in _all_kept(outside)},
            before.spent,
        )
        return Fit(
            identity,
            tuple(name for name in now.stores if name not in stores),
            tuple(gone),
            tuple((old, name) for name, old in stores.items() if name != old),
        )


def _alike(one: StoreIdentity, other: StoreIdentity) -> bool:
    if not one.kind:
        return True
    return (one.kind, one.key, one.value, one.windows) == (other.kind, other.key, other.value, other.windows)


def _shape(name: str) -> str:
    return re.sub(r"\d{10}", "#", name)


def _called(part: Part) -> str:
    what = [f"{', '.join(part.topics) or 'nothing'}"]
    what += [f"with {', '.join(part.stores)}"] if part.stores else []
    return f"sub-topology {part.number} (reading {' '.join(what)})"


def _changelog(changelog: str) -> str:
    return {"own": "a topic of its own", "none": "none"}.get(changelog, f"the topic {changelog!r}")


def _kept(name: str, old: Any) -> Any:
    return msgspec.structs.replace(old, kept=old.kept or name)


def _all_kept(outside: Mapping[str, str]) -> set[str]:
    return {kept or name for name, kept in outside.items()}


def _names(
    before: Mapping[str, Any],
    now: Iterable[str],
    matched: Mapping[str, str],
    unused: Mapping[str, Any],
    *,
    back: bool = False,
    spent: Iterable[str] = (),
) -> dict[str, str]:
    """The name each is kept under, "" for its own; no two share one."""
    found = {name: before[old].kept or (old if old != name else "") for name, old in matched.items()}
    taken = {*spent, *(kept or name for name, kept in found.items()), *(store.kept for store in unused.values())}
    for name in now:
        if name in found:
            continue
        if back and name in unused and unused[name].kept not in _all_kept(found):
            found[name] = "" if unused[name].kept == name else unused[name].kept
            continue
        free = name
        number = 2
        while free in taken:
            free, number = f"{name}-{number}", number + 1
        taken.add(free)
        found[name] = "" if free == name else free
    return found


def without_unused(identity: Identity, *, deleted: bool = True) -> Identity:
    """The record when what is no longer used has been deleted; or forgotten, and its rows must never be found."""
    parts = tuple(part for part in identity.parts if not part.gone)
    kept = () if deleted else tuple(store.kept or name for name, store in identity.unused.items())
    spent = tuple(sorted({*identity.spent, *kept}))
    return msgspec.structs.replace(identity, unused={}, unused_topics={}, parts=parts, spent=spent)


# ---- a topology under the names of its record --------------------------------------------------------------------


def adopted(topology: Topology, identity: Identity) -> Topology:
    """The topology with the names its record keeps things under: rows, repartition topics, and numbers of tasks.

    The stores are still found by their own names.
    """
    outside = {name: topic.kept for name, topic in identity.topics.items() if topic.kept}
    known = {(frozenset(part.topics), part.stores): part.number for part in identity.parts if not part.gone}
    found = with_kept_stores(topology, identity)
    numbers = {}
    plain = identity_of(topology, Config(identity.app_id), {})
    for part in plain.parts:
        numbers[part.number] = known[frozenset(part.topics), part.stores]
    found.numbers = {} if all(a == b for a, b in numbers.items()) else numbers
    if outside:
        found.internal_topics = {outside.get(name, name): n for name, n in topology.internal_topics.items()}
        found.nodes = {name: _outside(node, outside) for name, node in topology.nodes.items()}
    return found


def with_kept_stores(topology: Topology, identity: Identity) -> Topology:
    """The topology with the names its record keeps rows under."""
    known = identity.stores
    found = copy.copy(topology)

    def placed(specs: Mapping[str, StoreSpec]) -> dict[str, StoreSpec]:
        return {
            name: dataclasses.replace(spec, kept=known[name].kept, formerly=known[name].formerly)
            if name in known
            else spec
            for name, spec in specs.items()
        }

    found.stores, found.global_stores = placed(topology.stores), placed(topology.global_stores)
    return found


def _outside(node: Any, outside: Mapping[str, str]) -> Any:
    if isinstance(node, Source) and any(topic in outside for topic in node.topics):
        return dataclasses.replace(node, topics=tuple(outside.get(topic, topic) for topic in node.topics))
    if isinstance(node, Sink) and isinstance(node.topic, str) and node.topic in outside:
        return dataclasses.replace(node, topic=outside[node.topic])
    return node


# ---- what earlier versions left ----------------------------------------------------------------------------------

_SUB = re.compile(r"^\s*Sub-topology: (\d+)( for global store.*)?$")
_SOURCE = re.compile(r"^\s*Source: \S+ \(topics: (.*)\)$")
_STORES = re.compile(r"^\s*Processor: (.*) \(stores: \[(.*)\]\)$")
_CHILDREN = re.compile(r"^\s*--> (.*)$")
_FOREIGN_KEY = re.compile(r".*subscription-(registration|response).*-topic", re.IGNORECASE)


def from_description(app_id: str, text: str, tasks: Mapping[int, int] | None = None) -> Identity:
    """What is known of an application from its description, and the number of tasks of each sub-topology if there is
    state of them: names, and nothing of what the stores are.

    >>> from headwater import StreamsBuilder
    >>> builder = StreamsBuilder()
    >>> _ = builder.stream("words").group_by_key().count(store="counts")
    >>> from_description("app", builder.build().describe(), {0: 2}).parts
    (Part(number=0, topics={'words': 0}, stores=('counts',), tasks=2, gone=False),)
    """
    topics: dict[int, list[str]] = {}
    stores: dict[int, set[str]] = {}
    memories: dict[str, list[str]] = {}
    used: list[str] = []
    number: int | None = None
    for line in text.splitlines():
        if (found := _SUB.match(line.removeprefix("Topologies:"))) is not None:
            number = None if found[2] else int(found[1])
            if number is not None:
                topics[number], stores[number] = [], set()
        elif number is not None and (found := _SOURCE.match(line)) is not None:
            topics[number] += found[1][1:-1].split(", ") if found[1].startswith("[") else [found[1]]
        elif number is not None and (found := _STORES.match(line)) is not None:
            used = [name for name in found[2].split(", ") if name]
            stores[number].update(used)
            for name in used:
                memories.setdefault(name, []).append(f"node {found[1]}")
        elif (found := _CHILDREN.match(line)) is not None:
            # The two sides of a stream join share a memory that had the name of the step behind them.
            for name in used:
                memories[name] += [f"shared {child}" for child in found[1].split(", ")]
            used = []
    read = sorted({topic for names in topics.values() for topic in names})
    internal = [topic for topic in read if f"(topic: {topic})" in text and _is_internal(topic)]
    return Identity(
        app_id,
        {
            name: StoreIdentity("", formerly=tuple(sorted(set(memories[name]))))
            for name in sorted(set().union(*stores.values()))
        },
        {topic: Repartition(0) for topic in internal},
        tuple(
            Part(n, dict.fromkeys(sorted(topics[n]), 0), tuple(sorted(stores[n])), (tasks or {}).get(n, 0))
            for n in topics
        ),
    )


def _is_internal(topic: str) -> bool:
    return topic.endswith("-repartition") or _FOREIGN_KEY.fullmatch(topic) is not None
