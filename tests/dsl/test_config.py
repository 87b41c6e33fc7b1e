import ast
import dataclasses
import functools
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.dsl.config import Config, ErrorContext, optimizations
from headwater.dsl.durations import LONG_MAX
from headwater.errors import TopologyError

ALL = frozenset({"reuse-source-topics", "merge-repartition-topics", "self-join"})
ERRORS = "org.apache.kafka.streams.errors."


def skip_all(context: ErrorContext) -> Any:
    return "skip"


def test_defaults() -> None:
    config = Config("app")
    assert (config.cache_bytes, config.exactly_once, config.optimize, config.unmapped) == (0, True, False, ())
    assert (config.commit_interval_ms, config.max_task_idle_ms) == (100, 0)
    assert (config.join_emit_interval_ms, config.window_emit_interval_ms) == (1000, 1000)
    assert config.on_processing_error == config.on_production_error == config.on_deserialization_error == "fail"
    assert config.dead_letters is config.late is None


def test_the_commit_interval_follows_the_guarantee() -> None:
    assert Config(exactly_once=False).commit_interval_ms == 30_000
    assert Config(exactly_once=False, commit_interval=timedelta(seconds=1)).commit_interval_ms == 1000


def test_configs_are_picklable_values() -> None:
    config = Config("app", optimize={"self-join"}, on_processing_error=skip_all, state_dir=Path("state"), late="late")
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(pickle.loads(pickle.dumps(config)))
    assert config.optimize == frozenset({"self-join"})


def test_settings_of_kafka_are_a_value_and_are_never_shown() -> None:
    given = {"sasl.username": "shop", "sasl.password": "hunter2"}
    config = Config("app", kafka=given)
    given.clear()
    again = pickle.loads(pickle.dumps(config))
    assert again == config != Config("app")
    assert hash(again) == hash(config)
    assert again.kafka == {"sasl.username": "shop", "sasl.password": "hunter2"}
    assert "hunter2" not in repr(config) + str(config)
    with pytest.raises(TopologyError) as error:
        Config("app", kafka={"sasl.password": ["hunter2"], "retries": 5})  # type: ignore[dict-item]
    assert "hunter2" not in str(error.value)
    assert len(error.value.faults) == 2
    with pytest.raises(TopologyError, match="kafka must be a mapping from names to text, but is a list"):
        Config("app", kafka=["sasl.password=hunter2"])  # type: ignore[arg-type]


def test_the_cluster_decides_how_often_topics_are_kept_unless_told() -> None:
    assert Config.from_kafka({"replication.factor": "-1"}).replication_factor is None


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:8080", "[::1]:8080", "0.0.0.0:65535"])
def test_where_a_worker_may_listen(listen: str) -> None:
    assert Config(listen=listen).listen == listen


def test_all_faults_come_together() -> None:
    with pytest.raises(TopologyError) as error:
        Config(
            "..",
            cache_bytes=-1,
            commit_interval=timedelta(-1),
            exactly_once="yes",  # type: ignore[arg-type]
            optimize={"self-join", "faster"},
            join_emit_interval=1,  # type: ignore[arg-type]
            max_task_idle=5,  # type: ignore[arg-type]
            on_deserialization_error="dead-letter",
            on_processing_error="ignore",  # type: ignore[arg-type]
            on_production_error=lambda: "skip",  # type: ignore[arg-type, misc]
            late="",
            state_dir=7,  # type: ignore[arg-type]
            listen="8080",
            standbys=-1,
            replication_factor=0,
            instance_id="",
        )
    faults = "\n".join(error.value.faults)
    assert len(error.value.faults) == 16
    for argument in (
        "app_id must be letters",
        "cache_bytes must be a number",
        "commit_interval must not be negative",
        "exactly_once must be True or False",
        "optimize has no 'faster'",
        "join_emit_interval must be a timedelta",
        "max_task_idle must be a timedelta",
        'on_deserialization_error="dead-letter" needs a topic',
        'on_processing_error must be "fail"',
        "on_production_error: tests.dsl.test_config:",
        "late must be a topic's name",
        "state_dir must be a path",
        "listen must be host:port",
        "standbys must be a number",
        "replication_factor must be a number",
        "instance_id must be a name",
    ):
        assert f"Config: {argument}" in faults


def test_optimizations() -> None:
    assert optimizations(True) == ALL
    assert optimizations(False) == optimizations([]) == frozenset()
    assert optimizations(["self-join"]) == {"self-join"}
    for wrong in ("self-join", 1, None):
        with pytest.raises(TopologyError, match="optimize must be"):
            optimizations(wrong)  # type: ignore[arg-type]


def test_every_mapped_key() -> None:
    config = Config.from_kafka(
        {
            "application.id": "oracle",
            "statestore.cache.max.bytes": "10485760",
            "commit.interval.ms": 250,
            "processing.guarantee": "at_least_once",
            "topology.optimization": "all",
            "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
            "__emit.interval.ms.kstreams.windowed.aggregation__": "5",
            "max.task.idle.ms": "70",
            "deserialization.exception.handler": f"{ERRORS}LogAndContinueExceptionHandler",
            "processing.exception.handler": "LogAndContinueProcessingExceptionHandler",
            "production.exception.handler": f"{ERRORS}DefaultProductionExceptionHandler",
            "state.dir": "/tmp/state",
            "num.standby.replicas": "1",
            "replication.factor": 3,
            "application.server": "worker-1:8080",
            "group.instance.id": "worker-1",
            "security.protocol": "SASL_SSL",
            "max.poll.interval.ms": 60000,
        }
    )
    assert config == Config(
        "oracle",
        cache_bytes=10485760,
        commit_interval=timedelta(milliseconds=250),
        exactly_once=False,
        optimize=True,
        join_emit_interval=timedelta(0),
        window_emit_interval=timedelta(milliseconds=5),
        max_task_idle=timedelta(milliseconds=70),
        on_deserialization_error="skip",
        on_processing_error="skip",
        state_dir="/tmp/state",
        standbys=1,
        replication_factor=3,
        listen="worker-1:8080",
        instance_id="worker-1",
        kafka={"security.protocol": "SASL_SSL", "max.poll.interval.ms": "60000"},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", frozenset()),
        ("all", ALL),
        ("reuse.ktable.source.topics", {"reuse-source-topics"}),
        ("merge.repartition.topics , single.store.self.join", {"merge-repartition-topics", "self-join"}),
    ],
)
def test_optimization_words(text: str, expected: set[str]) -> None:
    assert optimizations(Config.from_kafka({"topology.optimization": text}).optimize) == expected


@pytest.mark.parametrize("turned", [False, True])
def test_newer_keys_win_over_older_ones(turned: bool) -> None:
    settings = [
        ("statestore.cache.max.bytes", 1),
        ("cache.max.bytes.buffering", 2),
        ("deserialization.exception.handler", "LogAndContinueExceptionHandler"),
        ("default.deserialization.exception.handler", "LogAndFailExceptionHandler"),
    ]
    config = Config.from_kafka(dict(reversed(settings) if turned else settings))
    assert (config.cache_bytes, config.on_deserialization_error) == (1, "skip")
    assert Config.from_kafka({"cache.max.bytes.buffering": "2"}).cache_bytes == 2


def test_what_has_no_counterpart_is_listed_in_order() -> None:
    config = Config.from_kafka(
        {
            "num.stream.threads": 2,
            "application.id": "a",
            "processing.exception.handler": "com.example.MyHandler",
            "bootstrap.servers": None,
            "state.dir": None,
        }
    )
    assert config.unmapped == ("num.stream.threads", "processing.exception.handler", "bootstrap.servers")
    assert config.on_processing_error == "fail"
    assert config.state_dir == Config().state_dir


def test_what_is_skipped_goes_to_the_dead_letter_topic_if_there_is_one() -> None:
    config = Config.from_kafka(
        {
            "errors.dead.letter.queue.topic.name": "dead",
            "deserialization.exception.handler": "LogAndContinueExceptionHandler",
            "processing.exception.handler": "LogAndFailProcessingExceptionHandler",
        }
    )
    assert config.dead_letters == "dead"
    assert (config.on_deserialization_error, config.on_processing_error) == ("dead-letter", "fail")


def test_a_task_that_never_waits_and_one_that_always_does() -> None:
    assert Config.from_kafka({"max.task.idle.ms": -1}).max_task_idle_ms == 0
    assert Config(max_task_idle=None).max_task_idle_ms == LONG_MAX


@pytest.mark.parametrize(
    "settings",
    [
        {"commit.interval.ms": "soon"},
        {"commit.interval.ms": -1},
        {"statestore.cache.max.bytes": 1.5},
        {"processing.guarantee": "exactly_twice"},
        {"topology.optimization": "all,single.store.self.join"},
        {"topology.optimization": "faster"},
    ],
)
def test_values_that_kafka_streams_would_refuse_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(TopologyError) as error:
        Config.from_kafka(settings)
    assert len(error.value.faults) == 1


@functools.cache
def settings_read() -> set[str]:
    """The settings that some code reads from a Config: `….config.late`, or `config.late`."""
    root = Path(__file__).parent.parent.parent
    files = [file for folder in ("dsl", "streams", "state") for file in (root / folder).rglob("*.py")]
    found = set()
    for file in files:
        if file == root / "dsl" / "config.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", None)
                if name in ("config", "_config"):
                    found.add(node.attr.removesuffix("_ms"))
    return found


@pytest.mark.parametrize("setting", [field.name for field in dataclasses.fields(Config)])
def test_every_setting_is_read_by_something_that_runs(setting: str) -> None:
    assert setting in settings_read()
