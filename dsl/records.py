"""Records and windowed keys as users see them. It owns their shape only: inside the task a record travels as bare
arguments, and a Record is made where user code asks for one."""

from typing import Any, NamedTuple

import msgspec

__all__ = ["Headers", "Record", "Windowed"]

Headers = tuple[tuple[str, bytes | None], ...]


class Record(msgspec.Struct, frozen=True):
    """A key, a value, a timestamp (epoch milliseconds) and headers, which never change.

    >>> from headwater import Record
    >>> record = Record("alice", 1, 1000, headers=(("trace", b"7"),))
    >>> record.replace(value=2)
    Record(key='alice', value=2, timestamp=1000, headers=(('trace', b'7'),))
    >>> record.value
    1
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def replace(
        self,
        *,
        key: Any = msgspec.UNSET,
        value: Any = msgspec.UNSET,
        timestamp: int | msgspec.UnsetType = msgspec.UNSET,
        headers: Headers | msgspec.UnsetType = msgspec.UNSET,
    ) -> "Record":
        """A record with the given parts exchanged; this one stays as it is.

        >>> from headwater import Record
        >>> Record("a", 1, 5).replace(key=None, timestamp=6)
        Record(key=None, value=1, timestamp=6, headers=())
        """
        unset = msgspec.UNSET
        return Record(
            self.key if key is unset else key,
            self.value if value is unset else value,
            self.timestamp if timestamp is unset else timestamp,
            self.headers if headers is unset else headers,
        )


class Windowed(NamedTuple):
    """The key of a windowed result: the record's own key and the window's bounds in epoch milliseconds.

    The end is exclusive for time windows, inclusive for sliding and session windows.

    >>> from headwater import Windowed
    >>> Windowed("alice", 0, 60000)
    Windowed(key='alice', start=0, end=60000)
    """

    key: Any
    start: int
    end: int
