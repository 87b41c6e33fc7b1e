"""A query made to begin anew: its checkpoint goes, and with it state and progress; topics stay as they are. Or its
stream time set back, when all that stays too. It owns what may be done to a checkpoint for that; who asks for it is the
command line's business."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headwater.dsl.config import Config
from headwater.dsl.topology import ProcessorNode, Topology
from headwater.errors import StreamsError
from headwater.streams.identity import without_unused
from headwater.streams.queries import State
from headwater.streams.run import state_directory
from headwater.streams.sockets import SOCKETS, ask_all
from headwater.streams.spark.record import FILE, Recorded
from headwater.streams.spark.set_back import REQUEST, write_request
from headwater.streams.stream_time import StreamTimes

__all__ = ["SparkReset", "open_spark_reset", "open_spark_stream_time"]


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
    _refuse_if_running(config, broker)
    place = _place(config, broker, checkpoint)
    if place.exists():
        _check(place, config)
    if unused:
        record = place / FILE
        known = msgspec.json.decode(record.read_bytes(), type=Recorded).known() if record.exists() else None
        yield SparkReset([], stores=() if known is None else tuple(known.unused), record=record)
        return
    yield SparkReset([place] if place.exists() else [])


@contextmanager
def open_spark_stream_time(
    topology: Topology, config: Config, broker: str, checkpoint: str | None, to: int
) -> Iterator[StreamTimes]:
    """A query's stream time, to be set back when it is started next; refused if it runs."""
    _refuse_if_running(config, broker)
    nodes = [node for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    if per_batch := [node.name for node in nodes if getattr(node.op, "emit", None) == "per-batch"]:
        raise StreamsError(
            f'{", ".join(per_batch)} may run in Spark itself (emit="per-batch"), whose watermark cannot be set back: '
            "reset the application (headwater reset --on spark), and refuse such records with Config(max_future=…)."
        )
    place = _place(config, broker, checkpoint)
    if not place.exists():
        raise StreamsError(f"{config.app_id!r} has no checkpoint {place}: there is no stream time to set back.")
    _check(place, config)
    yield StreamTimes(to, {}, lambda: write_request(place, to))


def _refuse_if_running(config: Config, broker: str) -> None:
    if ask_all(state_directory(config, broker).absolute() / SOCKETS, State()):
        raise StreamsError(f"{config.app_id!r} is running: stop it first, then reset it.")


def _place(config: Config, broker: str, checkpoint: str | None) -> Path:
    return _local(checkpoint) if checkpoint is not None else state_directory(config, broker).absolute() / "spark"


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
            f"hdfs dfs -rm -r {checkpoint}) while the query does not run. That is all a reset does. To set stream time "
            f'back instead, put a file {REQUEST} there: {{"id": "1", "to": 1769860800000}}, with another id each time.'
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
