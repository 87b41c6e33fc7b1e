"""The partitions of embedded logs that one process has open, kept from batch to batch. It owns when an opening may be
used again; what is read and appended is up to whoever asks for it."""

from collections import OrderedDict
from pathlib import Path

from headwater.state.log import Log, Partition

__all__ = ["LogHandles", "log_handles"]

# Each takes about four descriptors, and a process may often have no more than 1,024.
_MOST = 64

_open: dict[str, "LogHandles"] = {}


def log_handles(directory: str | Path) -> "LogHandles":
    """Return this process's openings of the log in the directory.

    Spark uses its Python processes again, and a fresh opening has to look through the active segment for its end, which
    takes longer than reading a small batch.
    """
    path = str(Path(directory).absolute())
    if path not in _open:
        _open[path] = LogHandles(Log.open(path))
    return _open[path]


class LogHandles:
    """A log, and the partitions of it that were used last."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._partitions: OrderedDict[tuple[str, int], tuple[str, Partition]] = OrderedDict()

    def partition(self, topic: str, number: int) -> Partition:
        """Return a partition, for use until another is asked for, which may close it; UnknownTopic if there is none.

        >>> from tempfile import TemporaryDirectory
        >>> from headwater.streams.spark.log_handles import log_handles
        >>> folder = TemporaryDirectory()
        >>> handles = log_handles(folder.name)
        >>> _ = handles.log.create_topic("orders")
        >>> orders = handles.partition("orders", 0)
        >>> handles.partition("orders", 0) is orders
        True
        >>> handles.close()
        >>> folder.cleanup()
        """
        place = topic, number
        # From the disk: an opening of a topic, or of a whole log, that was removed and made again would never notice.
        now = self.log.topic(topic).id
        known = self._partitions.get(place)
        if known is not None:
            if known[0] == now:
                self._partitions.move_to_end(place)
                return known[1]
            known[1].close()
            del self._partitions[place]
        fresh = self.log.partition(topic, number)
        self._partitions[place] = now, fresh
        if len(self._partitions) > _MOST:
            self._partitions.popitem(last=False)[1][1].close()
        return fresh

    def close(self) -> None:
        """Close what is open; what is asked for afterwards is opened anew."""
        for _, partition in self._partitions.values():
            partition.close()
        self._partitions.clear()
