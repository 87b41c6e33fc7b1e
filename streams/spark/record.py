"""What is noted beside a checkpoint, and whether a topology may go on from it. Spark itself numbers state by its place
in the plan, counted from the sink, and would give a changed topology another's state without a word. So the stages with
state must be the same ones, on as many shards, and the same topics must be read; within a stage, stores may come and go
as streams/identity.py says. Repartition topics are no part of it: nothing stays in them between two batches.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping

import msgspec
from pyspark.sql import SparkSession

from headwater.dsl.config import Config
from headwater.dsl.topology import Topology
from headwater.errors import StreamsError, TopologyError
from headwater.streams.identity import Fit, Identity, StoreIdentity, compare, from_description, identity_of
from headwater.streams.log_record import announce
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
    identity: Identity | None = None  # None: noted by an earlier version, which compared descriptions
    stateless: tuple[str, ...] = ()  # the stages without state

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
            _without_topics(identity_of(topology, config, stages.partitions, with_globals=True)),
            tuple(
                stage.name
                for stage in stages.stages
                if stage.kind != "task" and stage.spec is not None and not stage.spec.stores()
            ),
        )

    def known(self) -> Identity:
        """What the application was."""
        if self.identity is not None:
            return self.identity
        return _without_topics(from_description(self.app_id, self.topology))

    def _known_with_globals(self, now: Identity) -> Identity:
        known = self.known()
        if self.identity is not None:
            return known
        # A description does not say what global stores there are.
        own = {name for part in now.parts for name in part.stores}
        return msgspec.structs.replace(
            known, stores={**known.stores, **{name: StoreIdentity("") for name in now.stores if name not in own}}
        )

    def fit(self, now: Recorded, renamed: Mapping[str, str | None]) -> Fit:
        """What has stayed the same; a TopologyError with what has changed, as far as it matters."""
        found = self.differences(now)
        fit: Fit | None = None
        try:
            assert now.identity is not None
            fit = compare(self._known_with_globals(now.identity), now.identity, renamed)
        except TopologyError as error:
            # Partitions are compared above, those of applications without state too.
            found += [fault for fault in error.faults if not fault.startswith("topic ")]
        if fit is None or found:
            raise TopologyError(found)
        was, wanted = self._stages(now), now._stages(self)
        if was != wanted:
            raise TopologyError([f"its stages were {was} and are now {wanted}"])
        return fit

    def _stages(self, other: Recorded) -> dict[str, str]:
        """The stages with state; those without, which keep nothing, do not count, whatever runs them."""
        if self.identity is None or other.identity is None:
            # An earlier version did not say which keep nothing.
            return {name: stage for name, stage in self.stages.items() if not stage.startswith("arrow ")}
        return {name: stage for name, stage in self.stages.items() if name not in self.stateless}

    def differences(self, now: Recorded) -> list[str]:
        """What has changed in what it reads, as far as it matters; topics that are new to a pattern do not."""
        found: list[str] = []
        if self.app_id != now.app_id:
            found.append(f"it is the checkpoint of the application {self.app_id!r}, not of {now.app_id!r}")
        was, wanted = _read(self.known()), _read(now.known())
        if was != wanted:
            found.append(f"it read {', '.join(sorted(was))} and now reads {', '.join(sorted(wanted))}")
        else:
            # Global tables' too; topics of a pattern may come and go.
            patterns = [re.compile(topic) for topic in was]
            others = [
                topic
                for topic in sorted(self.topics.keys() ^ now.topics.keys())
                if not any(pattern.fullmatch(topic) for pattern in patterns)
            ]
            found += [f"the topic {topic!r} was {'' if topic in self.topics else 'not '}read" for topic in others]
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
        return found


def _without_topics(identity: Identity) -> Identity:
    parts = [
        msgspec.structs.replace(
            part, topics={topic: n for topic, n in part.topics.items() if topic not in identity.topics}, tasks=0
        )
        for part in identity.parts
    ]
    return msgspec.structs.replace(
        identity, topics={}, parts=tuple(part for part in parts if part.topics or part.stores)
    )


def _read(identity: Identity) -> set[str]:
    return {topic for part in identity.parts if not part.gone for topic in part.topics}


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
        faults: list[str] = []
        try:
            identity = noted.fit(query, {}).identity
        except TopologyError as error:
            faults += error.faults
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
        now = msgspec.json.encode(msgspec.structs.replace(query, identity=identity))
    if data != now:
        cells.put(CELL, now)


def _given(noted: Recorded) -> str:
    """The arguments of to_dataframes() with which a query was begun."""
    widths = sorted({*noted.topics.values()})
    return ", ".join(f"partitions={width}" for width in widths)


def take_up(
    spark: SparkSession, checkpoint: str, now: Recorded, renamed: Mapping[str, str | None] | None = None
) -> Recorded:
    """Note what a query is beside a new checkpoint, or return what is noted there; refuse what does not fit to it."""
    try:
        return _taken_up(spark, checkpoint, now, renamed or {})
    except Exception as error:
        fault = getattr(error, "java_exception", None)
        if fault is None:
            raise
        said = str(fault).partition("\n")[0]
        raise StreamsError(
            f"the checkpoint {checkpoint} can be neither read nor made ({said}): give a directory (--checkpoint)"
        ) from error


def _taken_up(spark: SparkSession, checkpoint: str, now: Recorded, renamed: Mapping[str, str | None]) -> Recorded:
    jvm = spark._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, FILE)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(path):
        if files.exists(jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")):
            raise StreamsError(
                f"{checkpoint} is the checkpoint of a query that Headwater did not start: give another (--checkpoint)"
            )
        _write(spark, checkpoint, now)
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
    try:
        fit = noted.fit(now, renamed)
    except TopologyError as error:
        told = "\n  - ".join(error.faults)
        raise StreamsError(
            f"the checkpoint {checkpoint} cannot be gone on with:\n  - {told}\n"
            "Start what it belongs to, or give this a new checkpoint (--checkpoint) and so begin anew."
        ) from None
    changed = msgspec.structs.replace(
        noted, topology=now.topology, stages=now.stages, identity=fit.identity, stateless=now.stateless
    )
    if changed != noted:
        announce(fit)
        _write(spark, checkpoint, changed)
    return changed


def _write(spark: SparkSession, checkpoint: str, record: Recorded) -> None:
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    hadoop = jvm.org.apache.hadoop.fs
    # Under another name first: a start that is killed here must not leave half of it.
    path, fresh = hadoop.Path(checkpoint, FILE), hadoop.Path(checkpoint, f"{FILE}.{record.query}")
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    out = files.create(fresh, True)
    out.write(bytearray(msgspec.json.encode(record)))
    out.close()
    overwrite = gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
    overwrite[0] = getattr(hadoop, "Options$Rename").OVERWRITE
    context = hadoop.FileContext.getFileContext(files.getUri(), spark._jsc.hadoopConfiguration())
    context.rename(files.makeQualified(fresh), files.makeQualified(path), overwrite)
