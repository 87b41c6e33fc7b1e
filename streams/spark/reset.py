"""A query made to begin anew: its checkpoint goes, and with it state and progress; topics stay as they are. It owns
what may be deleted for that; who asks for it is the command line's business."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headwater.dsl.config import Config
from headwater.errors import StreamsError
from headwater.streams.identity import without_unused
from headwater.streams.queries import State
from headwater.streams.run import state_directory
from headwater.streams.sockets import SOCKETS, ask_all
from headwater.streams.spark.record import FILE, Recorded

__all__ = ["SparkReset", "open_spark_reset"]


class _Noted(msgspec.Struct):
    """Of what is recorded beside a checkpoint, whose it is."""

    app_id: str


@dataclass
class SparkReset:
    """What a reset deletes; there are neither topics nor offsets outside of the checkpoint."""

    state: list[Path]
    topics: list[str] = field(default_factory=list)
    offsets: dict[tuple[str, int], tuple[int | None, int | None]] = field(default_factory=dict)
    stores: tuple[str, ...] = ()
    record: Path | None = None  # where stores are to be forgotten

    def run(self) -> None:
        """Do it."""
        if self.record is not None and self.stores:
            _forget_unused(self.record)
        for path in self.state:
            # Under another name first: a query must not go on from half of a checkpoint.
            gone = path.with_name(f"{path.name}.deleted")
            if gone.exists():
                shutil.rmtree(gone)
            path.rename(gone)
            shutil.rmtree(gone)


@contextmanager
def open_spark_reset(
    config: Config, broker: str, checkpoint: str | None = None, *, unused: bool = False
) -> Iterator[SparkReset]:
    """A reset of the application's query; refused if it runs, and if what is there is not its checkpoint.

    With `unused`, only the stores are forgotten that it no longer has: their rows stay in Spark's state, which cannot
    be written to from outside, and nothing finds them again.
    """
    directory = state_directory(config, broker).absolute()
    if ask_all(directory / SOCKETS, State()):
        raise StreamsError(f"{config.app_id!r} is running: stop it first, then reset it.")
    place = _local(checkpoint) if checkpoint is not None else directory / "spark"
    if place.exists():
        _check(place, config)
    if unused:
        record = place / FILE
        known = msgspec.json.decode(record.read_bytes(), type=Recorded).known() if record.exists() else None
        yield SparkReset([], stores=() if known is None else tuple(known.unused), record=record)
        return
    yield SparkReset([place] if place.exists() else [])


def _forget_unused(record: Path) -> None:
    recorded = msgspec.json.decode(record.read_bytes(), type=Recorded)
    identity = without_unused(recorded.known(), deleted=False)
    fresh = record.with_name(f"{record.name}.{recorded.query}")
    fresh.write_bytes(msgspec.json.encode(msgspec.structs.replace(recorded, identity=identity)))
    # Hadoop's checksum of what was there.
    record.with_name(f".{record.name}.crc").unlink(missing_ok=True)
    fresh.replace(record)


def _local(checkpoint: str) -> Path:
    scheme, separator, rest = checkpoint.partition(":")
    if separator and scheme != "file":
        raise StreamsError(
            f"The checkpoint {checkpoint} is not on this machine: delete it with the tools of its storage (such as "
            f"hdfs dfs -rm -r {checkpoint}) while the query does not run. That is all a reset does."
        )
    return Path("/" + rest.lstrip("/") if separator else checkpoint).absolute()


def _check(place: Path, config: Config) -> None:
    try:
        noted = msgspec.json.decode((place / FILE).read_bytes(), type=_Noted)
    except (OSError, msgspec.DecodeError) as error:
        raise StreamsError(
            f"{place} does not look like a checkpoint of Headwater's ({FILE}: {error}): if nothing else is in there, "
            "delete it by hand."
        ) from error
    if noted.app_id != config.app_id:
        raise StreamsError(
            f"{place} is the checkpoint of the application {noted.app_id!r}, not of {config.app_id!r}: correct "
            "--checkpoint or --app-id."
        )
