"""Config: the choices that hold for a whole application, and their Kafka Streams spellings. It owns defaults and
checks; what a setting does is described where it is used."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from headwater.dsl.callables import check
from headwater.dsl.durations import LONG_MAX, checked_ms, to_ms
from headwater.dsl.options import flag_fault
from headwater.dsl.records import Headers
from headwater.errors import TopologyError

__all__ = ["Config", "ErrorContext", "ErrorHandler", "ErrorResponse", "Optimize", "optimizations"]

ErrorResponse: TypeAlias = Literal["fail", "skip", "dead-letter"]
Optimize: TypeAlias = bool | Iterable[str]

_SECOND = 1000
_RESPONSES = ("fail", "skip", "dead-letter")
_OPTIMIZATIONS = frozenset({"reuse-source-topics", "merge-repartition-topics", "self-join"})
_DURATIONS = ("commit_interval", "join_emit_interval", "window_emit_interval", "max_task_idle", "max_future")
_HANDLERS = ("on_deserialization_error", "on_processing_error", "on_production_error")


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """What went wrong and where: given to an error handler, which answers "fail", "skip" or "dead-letter".

    `key` and `value` are bytes when they could not be read, and the step's input or output otherwise; topic, partition
    and offset are those of the source record, None in a punctuator. `function` is the user's, as module:line. The kind
    "future" is a record whose timestamp is further ahead than `max_future` allows.
    """

    kind: Literal["deserialization", "processing", "production", "future"]
    step: str
    error: BaseException
    key: Any = None
    value: Any = None
    timestamp: int | None = None
    headers: Headers = ()
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    function: str | None = None
    task_id: str | None = None


ErrorHandler: TypeAlias = ErrorResponse | Callable[[ErrorContext], ErrorResponse]


def optimizations(optimize: Optimize) -> frozenset[str]:
    """The names of the optimizations that are on: all for True, none for False, those given otherwise.

    >>> sorted(optimizations({"self-join"})), len(optimizations(True)), len(optimizations(False))
    (['self-join'], 3, 0)
    """
    if isinstance(optimize, bool):
        return _OPTIMIZATIONS if optimize else frozenset()
    known = ", ".join(sorted(_OPTIMIZATIONS))
    if isinstance(optimize, str) or not isinstance(optimize, Iterable):
        raise TopologyError([f"optimize must be True, False or a set of {known}, but is {optimize!r}"])
    names = list(optimize)
    unknown = [name for name in names if not isinstance(name, str) or name not in _OPTIMIZATIONS]
    if unknown:
        raise TopologyError([f"optimize has no {name!r}: choose from {known}" for name in unknown])
    return frozenset(names)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_app_id(value: object) -> bool:
    # The second part keeps "." and ".." out: the id is a directory's name too.
    return isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z0-9._-]+", value)) and value.strip(".") != ""


def _is_endpoint(value: object) -> bool:
    found = re.fullmatch(r"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})", value) if isinstance(value, str) else None
    return found is not None and int(found[1]) <= 65535


def _is_factor(value: object) -> bool:
    return value is None or (type(value) is int and value >= 1)


def _is_renaming(value: object) -> bool:
    if not isinstance(value, Mapping) or not all(map(_is_text, value)):
        return False
    new = [name for name in value.values() if name is not None]
    return all(map(_is_text, new)) and len(set(new)) == len(new)


def _kafka_faults(settings: object) -> list[str]:
    """What is wrong with the shape of Kafka's settings; no value is shown, since it may be a secret."""
    if not isinstance(settings, Mapping):
        return [f"Config: kafka must be a mapping from names to text, but is a {type(settings).__name__}"]
    return [
        f"Config: kafka must be a mapping from names to text, but {name!r} is a {type(value).__name__}"
        for name, value in settings.items()
        if not (isinstance(name, str) and isinstance(value, str))
    ]


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of an application; every fault in them is raised at once, as a TopologyError.

    - `app_id`: the stem of internal topics, of state directories and of the consumer group.
    - `cache_bytes`: the record cache, which folds updates of a key until the commit; 0 emits every update.
    - `commit_interval`: time between commits; 100 ms when exactly once, otherwise 30 s.
    - `optimize`: the optimisations that the topology must have been built with, `StreamsBuilder.build(optimize=...)`:
      one built otherwise is refused. False asks for nothing: the topology runs as it was built.
    - `join_emit_interval`, `window_emit_interval`: how often, by wall clock, left and outer joins and emit-on-close
      windows look for what has closed. Left out: every second, and with every record in the test driver.
    - `max_task_idle`: how long a task with several inputs waits for one that is empty; None waits for ever.
    - `task_timeout`: how long one record may take before its step counts as hung and the application fails, so that its
      process can be replaced; None waits for ever. On Kafka `max.poll.interval.ms`, which is as long, comes beside it.
    - `on_…_error`: "fail", "skip", "dead-letter" or a function of an ErrorContext that answers one of these.
    - `max_future`: how far beyond the wall clock the timestamp of a source record may be; None: any distance. One that
      is further ahead would make every later record late. Records of internal topics and global tables are not looked
      at.
    - `on_future`: what becomes of such a record, like `on_…_error`; left out: what `on_deserialization_error` says.
    - `dead_letters`, `late`: the topics for bad and for late records.
    - `compat`: "kafka-streams" turns off every deliberate difference from Kafka Streams that changes an output (those
      of decision 008). Where it throws, a StreamsError is raised.
    - `metrics`: "debug" also counts the records of every operator, which costs time for each of them.
    - `state_dir`: where state is kept; beside the embedded log if left out, since the two belong together.
    - `listen`: where a worker answers questions over HTTP, host:port; port 0 is any that is free.
    - `renamed`: stores and repartition topics that have another name now, {"old": "new"}; None for one that is gone
      where a new one looks like it. See `docs/changing-an-application.md`.

    With Kafka as the broker:

    - `kafka`: settings of its client by librdkafka's names, such as TLS and SASL; never shown, as some are secrets.
    - `standbys`: how many workers beside the one that runs a task keep a copy of its state, ready to take it over.
    - `replication_factor`: of the topics that the application makes for itself; the cluster's default if left out.
    - `instance_id`: the worker's name among the group's static members: one that is back under it before the session
      ends has its tasks again, without a rebalance.
    - `unmapped`: the keys that `from_kafka` has no counterpart for.

    >>> from headwater import Config
    >>> Config("revenue", on_processing_error="dead-letter", dead_letters="revenue-errors").commit_interval_ms
    100
    """

    app_id: str = "headwater"
    _: KW_ONLY
    cache_bytes: int = 0
    commit_interval: timedelta | None = None
    exactly_once: bool = True
    optimize: Optimize = False
    join_emit_interval: timedelta | None = None
    window_emit_interval: timedelta | None = None
    max_task_idle: timedelta | None = timedelta(0)
    task_timeout: timedelta | None = timedelta(minutes=5)
    on_deserialization_error: ErrorHandler = "fail"
    on_processing_error: ErrorHandler = "fail"
    on_production_error: ErrorHandler = "fail"
    max_future: timedelta | None = None
    on_future: ErrorHandler | None = None
    dead_letters: str | None = None
    late: str | None = None
    metrics: Literal["info", "debug"] = "info"
    state_dir: str | os.PathLike[str] | None = None
    listen: str | None = None
    renamed: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    # Not in the hash, since a mapping has none; equal ones still have equal hashes.
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    standbys: int = 0
    replication_factor: int | None = None
    instance_id: str | None = None
    unmapped: tuple[str, ...] = ()
    compat: Literal["kafka-streams"] | None = None

    def __post_init__(self) -> None:
        faults = [
            f"Config: {argument} must be {wanted}, but is {getattr(self, argument)!r}"
            for argument, good, wanted in (
                ("app_id", _is_app_id(self.app_id), "letters, digits, '.', '_' and '-', as topic names begin with it"),
                ("cache_bytes", type(self.cache_bytes) is int and self.cache_bytes >= 0, "a number from 0 on"),
                ("exactly_once", flag_fault("", self.exactly_once) is None, "True or False"),
                ("dead_letters", self.dead_letters is None or _is_text(self.dead_letters), "a topic's name"),
                ("late", self.late is None or _is_text(self.late), "a topic's name"),
                ("compat", self.compat in (None, "kafka-streams"), '"kafka-streams" or None'),
                ("metrics", self.metrics in ("info", "debug"), '"info" or "debug"'),
                ("state_dir", isinstance(self.state_dir, str | os.PathLike | None), "a path"),
                ("listen", self.listen is None or _is_endpoint(self.listen), "host:port, such as 127.0.0.1:8080"),
                ("standbys", type(self.standbys) is int and self.standbys >= 0, "a number from 0 on"),
                ("replication_factor", _is_factor(self.replication_factor), "a number from 1 on"),
                ("instance_id", self.instance_id is None or _is_text(self.instance_id), "a name"),
                ("renamed", _is_renaming(self.renamed), "a mapping from old names to new ones, each new one once"),
            )
            if not good
        ]
        faults += _kafka_faults(self.kafka)
        for argument in ("kafka", "renamed"):
            if isinstance(mapping := getattr(self, argument), Mapping):
                # A copy: whoever gave it may go on changing it.
                object.__setattr__(self, argument, dict(mapping))
        for argument in _DURATIONS:
            duration = getattr(self, argument)
            if duration is not None:
                checked_ms(f"Config: {argument}", duration, faults)
        if self.task_timeout is not None:
            checked_ms("Config: task_timeout", self.task_timeout, faults, least=1)
        try:
            names = optimizations(self.optimize)
            if not isinstance(self.optimize, bool):
                object.__setattr__(self, "optimize", names)
        except TopologyError as error:
            faults += [f"Config: {fault}" for fault in error.faults]
        for argument in _HANDLERS:
            self._check_handler(argument, getattr(self, argument), faults)
        if self.on_future is not None:
            self._check_handler("on_future", self.on_future, faults)
            if self.max_future is None:
                faults.append("Config: on_future= needs a bound: give max_future=timedelta(…)")
        if faults:
            raise TopologyError(faults)

    def _check_handler(self, argument: str, handler: object, faults: list[str]) -> None:
        if callable(handler):
            try:
                check(handler, 1)
            except ValueError as fault:
                faults.append(f"Config: {argument}: {fault}")
        elif not isinstance(handler, str) or handler not in _RESPONSES:
            faults.append(
                f'Config: {argument} must be "fail", "skip", "dead-letter" or a function of an ErrorContext, '
                f"but is {handler!r}"
            )
        elif handler == "dead-letter" and self.dead_letters is None:
            faults.append(f'Config: {argument}="dead-letter" needs a topic: give dead_letters="…"')

    @property
    def commit_interval_ms(self) -> int:
        """Milliseconds between commits; Kafka Streams' default for the guarantee if none was given."""
        if self.commit_interval is None:
            return 100 if self.exactly_once else 30_000
        return to_ms(self.commit_interval)

    @property
    def join_emit_interval_ms(self) -> int:
        """Milliseconds of wall clock between two looks of a join for unmatched records."""
        return _SECOND if self.join_emit_interval is None else to_ms(self.join_emit_interval)

    @property
    def window_emit_interval_ms(self) -> int:
        """Milliseconds of wall clock between two looks of an emit-on-close step for closed windows."""
        return _SECOND if self.window_emit_interval is None else to_ms(self.window_emit_interval)

    @property
    def max_task_idle_ms(self) -> int:
        """Milliseconds a task waits for an empty input."""
        return LONG_MAX if self.max_task_idle is None else to_ms(self.max_task_idle)

    @property
    def max_future_ms(self) -> int | None:
        """Milliseconds that a source record's timestamp may be beyond the wall clock; None: any number."""
        return None if self.max_future is None else to_ms(self.max_future)

    @staticmethod
    def from_kafka(settings: Mapping[str, Any]) -> "Config":
        """The Config that Kafka Streams' own settings ask for; what they leave out keeps Headwater's default.

        Numbers may be text, handlers are given by class name. Keys and handlers without a counterpart are listed in
        `unmapped`.

        >>> from headwater import Config
        >>> config = Config.from_kafka({"application.id": "a", "commit.interval.ms": "200", "num.stream.threads": 2})
        >>> config.app_id, config.commit_interval_ms, config.unmapped
        ('a', 200, ('num.stream.threads',))
        """
        given: dict[str, Any] = {}
        kafka: dict[str, str] = {}
        unmapped: list[str] = []
        faults: list[str] = []
        dead_letters = settings.get("errors.dead.letter.queue.topic.name") is not None
        # Sorted by rank: where Kafka Streams renamed a key, the newer one is read last and wins.
        for key in sorted(settings, key=lambda key: key not in _OLDER):
            value = settings[key]
            if key in _CLIENT:
                kafka |= {} if value is None else {key: str(value)}
                continue
            if key not in _KEYS:
                unmapped.append(key)
                continue
            if value is None:
                continue
            argument, read = _KEYS[key]
            try:
                given[argument] = read(value)
            except KeyError:
                unmapped.append(key)
            except (TypeError, ValueError) as error:
                faults.append(f"Config.from_kafka: {key}={value!r}: {error}")
        if faults:
            raise TopologyError(faults)
        if dead_letters:
            # Kafka Streams' stock handlers send what they skip to the dead letter topic as soon as there is one.
            given |= {argument: "dead-letter" for argument in _HANDLERS if given.get(argument) == "skip"}
        in_order = tuple(key for key in settings if key in unmapped)
        return Config(**given, kafka=kafka, unmapped=in_order)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError("a whole number is needed")
    return int(value)


def _milliseconds(value: Any) -> timedelta:
    # Kafka's usual word for "never" is the largest long, which no timedelta holds.
    return timedelta(milliseconds=min(_number(value), timedelta.max // timedelta(milliseconds=1)))


def _idle(value: Any) -> timedelta:
    # Kafka Streams' -1 processes what is there at once; so does our 0, which knows of no lag to wait for.
    return timedelta(milliseconds=max(_number(value), 0))


def _factor(value: Any) -> int | None:
    # -1 is Kafka Streams' word for the cluster's default.
    return None if _number(value) == -1 else _number(value)


def _guarantee(value: Any) -> bool:
    if value == "at_least_once":
        return False
    if value in ("exactly_once_v2", "exactly_once", "exactly_once_beta"):
        return True
    raise ValueError("at_least_once or exactly_once_v2 is needed")


def _optimization(value: Any) -> bool | frozenset[str]:
    if isinstance(value, bool):
        return value
    names = [name.strip() for name in str(value).split(",")]
    if len(names) == 1 and names[0] in ("all", "none"):
        return names[0] == "all"
    unknown = [name for name in names if name not in _KAFKA_OPTIMIZATIONS]
    if unknown:
        raise ValueError(f"all, none, or a list of {', '.join(_KAFKA_OPTIMIZATIONS)} is needed")
    return frozenset(_KAFKA_OPTIMIZATIONS[name] for name in names)


def _level(value: Any) -> str:
    # Kafka Streams' TRACE counts what we do not have.
    return "info" if str(value).upper() == "INFO" else "debug"


def _handler(value: Any) -> str:
    return _KAFKA_HANDLERS[str(value).rpartition(".")[2]]


_KAFKA_OPTIMIZATIONS = {
    "reuse.ktable.source.topics": "reuse-source-topics",
    "merge.repartition.topics": "merge-repartition-topics",
    "single.store.self.join": "self-join",
}
_KAFKA_HANDLERS = {
    "LogAndFailExceptionHandler": "fail",
    "LogAndContinueExceptionHandler": "skip",
    "LogAndFailProcessingExceptionHandler": "fail",
    "LogAndContinueProcessingExceptionHandler": "skip",
    "DefaultProductionExceptionHandler": "fail",
}
# Settings of the clients that have the same name and meaning in Java's and in librdkafka.
_CLIENT = frozenset(
    {
        *("client.id", "client.rack", "compression.type", "heartbeat.interval.ms", "max.poll.interval.ms"),
        *("sasl.mechanism", "security.protocol", "session.timeout.ms", "transaction.timeout.ms"),
    }
)
_OLDER = frozenset(
    {
        "cache.max.bytes.buffering",
        "default.deserialization.exception.handler",
        "default.production.exception.handler",
    }
)
_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "application.id": ("app_id", str),
    "statestore.cache.max.bytes": ("cache_bytes", _number),
    "cache.max.bytes.buffering": ("cache_bytes", _number),
    "commit.interval.ms": ("commit_interval", _milliseconds),
    "processing.guarantee": ("exactly_once", _guarantee),
    "topology.optimization": ("optimize", _optimization),
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": ("join_emit_interval", _milliseconds),
    "__emit.interval.ms.kstreams.windowed.aggregation__": ("window_emit_interval", _milliseconds),
    "max.task.idle.ms": ("max_task_idle", _idle),
    "deserialization.exception.handler": ("on_deserialization_error", _handler),
    "default.deserialization.exception.handler": ("on_deserialization_error", _handler),
    "processing.exception.handler": ("on_processing_error", _handler),
    "production.exception.handler": ("on_production_error", _handler),
    "default.production.exception.handler": ("on_production_error", _handler),
    "errors.dead.letter.queue.topic.name": ("dead_letters", str),
    "metrics.recording.level": ("metrics", _level),
    "state.dir": ("state_dir", str),
    "num.standby.replicas": ("standbys", _number),
    "replication.factor": ("replication_factor", _factor),
    "application.server": ("listen", str),
    "group.instance.id": ("instance_id", str),
    "consumer.group.instance.id": ("instance_id", str),
    "main.consumer.group.instance.id": ("instance_id", str),
}
