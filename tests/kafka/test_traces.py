"""Seed 0 of every topology through the real worker over Kafka, step by step."""

from pathlib import Path

import pytest

from tests.conformance.replay import build, check, load_trace, replay, trace_files
from tests.kafka.broker import Broker
from tests.kafka.player import KafkaPlayer, without_time_zero

SEED_0 = [path for path in trace_files() if path.stem.endswith(".0")]


@pytest.mark.parametrize("path", [pytest.param(path, id=f"kafka-{path.stem}") for path in SEED_0])
def test_trace(path: Path, kafka: Broker) -> None:
    trace = without_time_zero(load_trace(path))
    topology, case = build(trace)
    with KafkaPlayer(trace, topology, case, kafka) as player:
        check(trace, replay(trace, player), "kafka")
