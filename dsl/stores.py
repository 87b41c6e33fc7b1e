"""Store descriptions: the name, kind, serdes and retention of a store, before anything is opened. It owns what a user
may ask for; the stores themselves are in state/ and streams/."""

from dataclasses import KW_ONLY, dataclass
from datetime import timedelta

from headwater.dsl.durations import checked_ms, to_ms
from headwater.dsl.options import flag_fault
from headwater.dsl.serde import Serde, serde_fault
from headwater.errors import TopologyError

__all__ = ["KeyValue", "Session", "StoreDescription", "TimestampedKeyValue", "Versioned", "Window"]


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """What all store descriptions share; None leaves the choice to the step that uses the store, or to Config."""

    name: str | None = None
    _: KW_ONLY
    key: Serde | None = None
    value: Serde | None = None
    memory: bool = False
    cached: bool | None = None
    changelog: bool = True

    def __post_init__(self) -> None:
        faults = []
        where = f"{type(self).__name__}({self.name!r})"
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            faults.append(f"{where}: name must be text, or None for a generated one")
        for argument, serde in (("key", self.key), ("value", self.value)):
            fault = None if serde is None else serde_fault(f"{where}: {argument}", serde)
            if fault:
                faults.append(fault)
        flags = (
            flag_fault(f"{where}: memory", self.memory),
            flag_fault(f"{where}: cached", self.cached, optional=True),
            flag_fault(f"{where}: changelog", self.changelog),
        )
        faults += [fault for fault in flags if fault]
        self._check(where, faults)
        if faults:
            raise TopologyError(faults)

    def _check(self, where: str, faults: list[str]) -> None:
        """What is wrong with the fields that only this kind of store has goes into `faults`."""


@dataclass(frozen=True, slots=True)
class KeyValue(StoreDescription):
    """A store with one value per key; as `store=` of a DSL step it keeps a timestamp beside each value.

    >>> from headwater import Int64, KeyValue
    >>> KeyValue("counts", value=Int64(), memory=True).name
    'counts'
    """


@dataclass(frozen=True, slots=True)
class TimestampedKeyValue(StoreDescription):
    """A store with one value and its timestamp per key.

    >>> from headwater import TimestampedKeyValue
    >>> TimestampedKeyValue("latest").changelog
    True
    """


@dataclass(frozen=True, slots=True)
class Versioned(StoreDescription):
    """A store with every version of a key's value that is not older than `retention`, by stream time.

    >>> from datetime import timedelta
    >>> from headwater import Versioned
    >>> Versioned("prices", retention=timedelta(hours=1)).retention_ms
    3600000
    """

    _: KW_ONLY
    retention: timedelta

    @property
    def retention_ms(self) -> int:
        """How long old versions are kept."""
        return to_ms(self.retention)

    def _check(self, where: str, faults: list[str]) -> None:
        checked_ms(f"{where}: retention", self.retention, faults)
        if self.cached is True:
            faults.append(f"{where}: cached: versions are not cached, as in Kafka Streams: leave it out")


@dataclass(frozen=True, slots=True)
class Window(StoreDescription):
    """A store with a value per key and window start, kept for `retention` of stream time.

    With `duplicates`, rows of the same key and start stand beside each other; with `timestamped`, each row keeps a
    timestamp. Left out, size and retention are those of the windows it is used with.

    >>> from datetime import timedelta
    >>> from headwater import Window
    >>> Window("clicks", retention=timedelta(days=1)).retention_ms
    86400000
    """

    _: KW_ONLY
    size: timedelta | None = None
    retention: timedelta | None = None
    timestamped: bool = False
    duplicates: bool = False

    @property
    def size_ms(self) -> int | None:
        """The length of its windows, if given."""
        return None if self.size is None else to_ms(self.size)

    @property
    def retention_ms(self) -> int | None:
        """How long rows are kept, if given."""
        return None if self.retention is None else to_ms(self.retention)

    def _check(self, where: str, faults: list[str]) -> None:
        flags = (("timestamped", self.timestamped), ("duplicates", self.duplicates))
        faults += [fault for name, flag in flags if (fault := flag_fault(f"{where}: {name}", flag))]
        before = len(faults)
        size_ms = 0 if self.size is None else checked_ms(f"{where}: size", self.size, faults)
        if self.retention is None:
            return
        retention_ms = checked_ms(f"{where}: retention", self.retention, faults)
        if len(faults) == before and retention_ms < size_ms:
            faults.append(
                f"{where}: retention must not be shorter than the windows' size ({size_ms} ms), "
                f"but is {retention_ms} ms: a window would be gone before it ends"
            )


@dataclass(frozen=True, slots=True)
class Session(StoreDescription):
    """A store with a value per key and session, kept for `retention` of stream time.

    >>> from datetime import timedelta
    >>> from headwater import Session
    >>> Session("visits", retention=timedelta(hours=1)).retention_ms
    3600000
    """

    _: KW_ONLY
    retention: timedelta | None = None

    @property
    def retention_ms(self) -> int | None:
        """How long sessions are kept, if given."""
        return None if self.retention is None else to_ms(self.retention)

    def _check(self, where: str, faults: list[str]) -> None:
        if self.retention is not None:
            checked_ms(f"{where}: retention", self.retention, faults)
