"""What is noted beside a checkpoint, and whether a topology may go on from it. Spark itself numbers state by its place
in the plan, counted from the sink, and would give a changed topology another's state without a word.
"""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Callable, Iterable

import msgspec
from pyspark.sql import SparkSession

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError
from headwater.streams.spark.stages import Stages, needs_clock
from headwater.streams.spark.state import Cells

__all__ = ["FILE", "Recorded", "check_state", "take_up"]

FILE = "headwater.json"
# The cell of a shard that says which query has made its state, where there is no file for that.
CELL = b"i"


class Recorded(msgspec.Struct, frozen=True):
    """What a query is, as far as its checkpoint hangs on it."""

    query: str  # one id per checkpoint, under which results are written once
    app_id: str
    topology: str
    stages: dict[str, str]  # where each runs and on how many shards, in the order of the chain
    topics: dict[str, int]  # and their partitions
    identities: dict[str, str]  # of those topics
    partitions: int  # Spark's
    clock: bool = False  # whether the clock is among its sources

    @classmethod
    def of(
        cls,
        topology: Topology,
        config: Config,
        stages: Stages,
        identities: Callable[[Iterable[str]], dict[str, str]],
        partitions: int,
    ) -> Recorded:
        """What a topology is now."""
        read = {topic for stage in stages.stages for topic in stage.topics} | stages.global_topics
        topics = {topic: stages.partitions[topic] for topic in sorted(read - stages.internal)}
        return cls(
            uuid.uuid4().hex,
            config.app_id,
            topology.describe(),
            {stage.name: f"{stage.kind} on {stage.shards}" for stage in stages.stages},
            topics,
            identities(topics),
            partitions,
            needs_clock(stages, config),
        )

    def differences(self, now: Recorded) -> list[str]:
        """What has changed since, as far as it matters; topics that are new to a pattern do not."""
        found: list[str] = []
        if self.app_id != now.app_id:
            found.append(f"it is the checkpoint of the application {self.app_id!r}, not of {now.app_id!r}")
        if self.topology != now.topology:
            lines = difflib.unified_diff(
                self.topology.splitlines(), now.topology.splitlines(), "checkpoint", "now", lineterm="", n=0
            )
            found.append("the topology has changed:\n" + "\n".join(f"    {line}" for line in lines))
        for topic, count in self.topics.items():
            if topic in now.topics and now.topics[topic] != count:
                found.append(
                    f"the topic {topic!r} had {count} partitions and now has {now.topics[topic]}: keys would go to "
                    "shards that do not know them"
                )
        for topic, identity in self.identities.items():
            if now.identities.get(topic, identity) != identity:
                found.append(f"the topic {topic!r} has been deleted and made anew: its offsets mean other records now")
        if self.clock != now.clock and not found:
            found.append(
                f"it was made {'with' if self.clock else 'without'} the clock among its sources, which max_task_idle "
                "decides: set that as it was"
            )
        if self.stages != now.stages and not found:
            found.append(f"its stages were {self.stages} and are now {now.stages}")
        return found


def check_state(cells: Cells, now: bytes) -> None:
    """Refuse the state of a shard that another query than this has made; note in new state which one makes it.

    For queries over DataFrames, whose checkpoint is the user's and not known before they run. State that earlier
    versions have made does not say whose it is, and is taken for this one's.
    """
    data = cells.get(CELL)
    if data == now:
        return
    if data is not None:
        noted, query = (msgspec.json.decode(each, type=Recorded) for each in (data, now))
        faults = noted.differences(query)
        if noted.partitions != query.partitions:
            faults.append(
                f"spark.sql.shuffle.partitions was {noted.partitions} and is {query.partitions}, which decides where "
                f"state is looked for: set it to {noted.partitions} before to_dataframes() is called"
            )
        if faults:
            told = "; ".join(fault.replace("\n", " ") for fault in faults)
            raise StreamsError(
                f"to_dataframes(): the checkpoint of this query has state of another: {told}. Give what it was begun "
                f"with ({_given(noted)}), or start the query with a new checkpoint, from the beginning of its input"
            )
    cells.put(CELL, now)


def _given(noted: Recorded) -> str:
    """The arguments of to_dataframes() with which a query was begun."""
    widths = sorted({*noted.topics.values()})
    return ", ".join(f"partitions={width}" for width in widths)


def take_up(spark: SparkSession, checkpoint: str, now: Recorded) -> Recorded:
    """Note what a query is beside a new checkpoint, or return what is noted there; refuse what does not fit to it."""
    try:
        return _taken_up(spark, checkpoint, now)
    except Exception as error:
        fault = getattr(error, "java_exception", None)
        if fault is None:
            raise
        said = str(fault).partition("\n")[0]
        raise StreamsError(
            f"the checkpoint {checkpoint} can be neither read nor made ({said}): give a directory (--checkpoint)"
        ) from error


def _taken_up(spark: SparkSession, checkpoint: str, now: Recorded) -> Recorded:
    jvm = spark._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, FILE)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(path):
        if files.exists(jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")):
            raise StreamsError(
                f"{checkpoint} is the checkpoint of a query that Headwater did not start: give another (--checkpoint)"
            )
        # Under another name first: a start that is killed here must not leave half of it.
        fresh = jvm.org.apache.hadoop.fs.Path(checkpoint, f"{FILE}.{now.query}")
        out = files.create(fresh, True)
        out.write(bytearray(msgspec.json.encode(now)))
        out.close()
        files.rename(fresh, path)
        return now
    stream = files.open(path)
    data = bytes(stream.readAllBytes())
    stream.close()
    try:
        noted = msgspec.json.decode(data, type=Recorded)
    except msgspec.DecodeError as error:
        raise StreamsError(
            f"{FILE} in the checkpoint {checkpoint} cannot be read ({error}): give another checkpoint (--checkpoint)"
        ) from error
    faults = noted.differences(now)
    if faults:
        told = "\n  - ".join(faults)
        raise StreamsError(
            f"the checkpoint {checkpoint} cannot be gone on with:\n  - {told}\n"
            "Start what it belongs to, or give this a new checkpoint (--checkpoint) and so begin anew."
        )
    return noted
