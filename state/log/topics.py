"""What a topic is: its name, partitions and settings, kept in one small file. It owns which names and settings are
allowed and how the file is read; making, changing and deleting topics is the log's."""

import re
from pathlib import Path

import msgspec

from headwater.errors import StreamsError
from headwater.state.log import documents
from headwater.state.log.batch import CODECS
from headwater.state.log.files import Files

__all__ = ["DAY_MS", "TOPIC_NAME", "TopicInfo", "check_name", "load_topic", "store_topic"]

DAY_MS = 24 * 60 * 60 * 1000
TOPIC_NAME = "topic"
_ALLOWED = re.compile(r"[A-Za-z0-9._-]{1,249}")


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic's name, number of partitions and settings; times are milliseconds, None means without limit."""

    name: str
    id: str
    """Tells a topic from an earlier one of the same name."""
    partitions: int = 1
    compact: bool = False
    """Keep the last record of each key."""
    delete: bool = True
    """Delete segments by age and size."""
    retention_ms: int | None = 7 * DAY_MS
    retention_bytes: int | None = None
    """Of each partition."""
    segment_bytes: int = 64 << 20
    segment_ms: int = 7 * DAY_MS
    compression: str = "lz4"

    def check(self) -> None:
        """Raise one error that lists every setting which is not allowed."""
        faults = []
        if self.partitions < 1:
            faults.append(f"partitions={self.partitions}: at least 1")
        if self.compression not in CODECS:
            faults.append(f"compression={self.compression!r}: one of {', '.join(CODECS)}")
        faults += [
            f"{name}={value}: more than 0"
            for name, value in (("segment_bytes", self.segment_bytes), ("segment_ms", self.segment_ms))
            if value < 1
        ]
        faults += [
            f"{name}={value}: 0 or more, or None for no limit"
            for name, value in (("retention_ms", self.retention_ms), ("retention_bytes", self.retention_bytes))
            if value is not None and value < 0
        ]
        if faults:
            raise StreamsError(f"Topic {self.name!r} cannot have {'; '.join(faults)}.")


def check_name(name: str) -> None:
    """Raise unless Kafka would take the name as well, so that a topic moves there unchanged."""
    if not _ALLOWED.fullmatch(name) or name in (".", ".."):
        raise StreamsError(
            f"{name!r} cannot be a topic's name: that is 1 to 249 letters, digits, dots, underscores or dashes, "
            "and not . or .. alone."
        )


def load_topic(files: Files, directory: Path) -> TopicInfo:
    """Return what the topic in this directory is; FileNotFoundError if there is none."""
    return documents.load(files, directory / TOPIC_NAME, "topic", TopicInfo)


def store_topic(files: Files, directory: Path, info: TopicInfo) -> None:
    documents.store(files, directory / TOPIC_NAME, "topic", info)
