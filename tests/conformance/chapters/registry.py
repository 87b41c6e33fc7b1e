"""What the chapters share: the registry, its decorator and the few words of the trace descriptions."""

from collections.abc import Callable
from datetime import timedelta

from headwater import Str, StreamsBuilder, Topology
from tests.conformance.case import Case

Builder = Callable[[Case], Topology]
TOPOLOGIES: dict[str, Builder] = {}


def topology(name: str) -> Callable[[Builder], Builder]:
    """Register the decorated function as the topology of the traces called `name`."""

    def register(build: Builder) -> Builder:
        assert name not in TOPOLOGIES, f"{name} is registered twice"
        TOPOLOGIES[name] = build
        return build

    return register


def new_builder() -> StreamsBuilder:
    """Return a builder whose default serdes are those of the traces."""
    return StreamsBuilder(key=Str(), value=Str())


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def text(value: object) -> str:
    """Write a value as the traces do: null is the text `null`."""
    return "null" if value is None else str(value)


def plus(left: object, right: object) -> str:
    """Join two values as most traces' joiners do."""
    return f"{text(left)}+{text(right)}"


def before_colon(value: str | None) -> str | None:
    return None if value is None else value.partition(":")[0]


def after_colon(value: str) -> str:
    return value.partition(":")[2]


def first_character(value: str | None) -> str | None:
    return None if value is None else value[0]


def words(value: str | None) -> list[str]:
    return [] if value is None else value.split(" ")


def empty() -> str:
    return ""


def zero() -> int:
    return 0


def dotted(key: str, value: str | None, aggregate: str) -> str:
    """Add `.value` to the text of a key: the traces' usual aggregator."""
    return f"{aggregate}.{text(value)}"
