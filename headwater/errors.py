"""The errors Headwater raises on purpose: one class per remedy, all of them a StreamsError. It owns no message but
TopologyError's; whoever raises says which step, store or topic-partition@offset and what to do."""

from collections.abc import Iterable

__all__ = ["SerdeError", "StateError", "StreamsError", "TopologyError"]


class StreamsError(Exception):
    """Processing cannot go on; the user's own exception, if there was one, is the cause."""


class TopologyError(StreamsError):
    """The topology is faulty: change the code that builds it. Lists every fault, not only the first.

    >>> print(TopologyError(["store 'a' is added twice", "step 'b' has no parent"]))
    The topology has 2 faults:
      1. store 'a' is added twice
      2. step 'b' has no parent
    """

    faults: tuple[str, ...]

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        # The faults and not the text are the argument: unpickling calls __init__ with it.
        super().__init__(self.faults)

    def __str__(self) -> str:
        count = len(self.faults)
        head = f"The topology has {count} fault{'' if count == 1 else 's'}:"
        return "\n".join([head, *(f"  {number}. {fault}" for number, fault in enumerate(self.faults, 1))])


class SerdeError(StreamsError):
    """A key or value cannot be encoded or decoded: change the serde or the data."""


class StateError(StreamsError):
    """The state on disk does not fit the topology or the log, or is damaged: restore it, or reset the application."""
