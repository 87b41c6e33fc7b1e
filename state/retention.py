"""When a row of a window or session store is too old to be read, and when its segment goes. It owns Kafka Streams' rule
(its RocksDB stores', which decide on every back end); the stores do the deleting.

Kafka Streams cuts time into segments. A put is refused when its segment lies before the one that holds the newest time
minus the retention, and then whole segments go; reads are cut to the millisecond, by each store for itself.
"""

__all__ = ["first_live_time", "segment_length"]


def segment_length(retention_ms: int) -> int:
    """Return how many milliseconds a segment of a window or session store covers.

    >>> from headwater.state.retention import segment_length
    >>> segment_length(70), segment_length(3_600_000)
    (60000, 1800000)
    """
    return max(retention_ms // 2, 60_000)


def first_live_time(observed: int, retention_ms: int, segment_ms: int) -> int:
    """Return the first time of the oldest segment that is kept when the newest time put is `observed`.

    >>> from headwater.state.retention import first_live_time
    >>> first_live_time(130_000, 60_000, 60_000)
    60000
    """
    oldest = observed - retention_ms
    return oldest - oldest % segment_ms if oldest > 0 else 0
