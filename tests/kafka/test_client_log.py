"""What Kafka's client says, as it reaches the log."""

import logging
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.streams.kafka import client_log
from tests.kafka.broker import HOST
from tests.streams.apps import until


def test_a_client_without_a_broker_says_so_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = {"bootstrap.servers": f"{HOST}:1", "group.id": "none"}
    consumers = [Consumer(nowhere, logger=client_log.client_log) for _ in range(2)]

    def listen(seconds: float) -> None:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            for consumer in consumers:
                consumer.poll(0.01)

    with caplog.at_level(logging.INFO, logger="headwater"):
        for consumer in consumers:
            consumer.assign([TopicPartition("any", 0)])
        until(lambda: listen(0.5) or "Connection refused" in caplog.text)
        listen(1)
        assert caplog.text.count("Connection refused") == 1
        monkeypatch.setattr(client_log, "QUIET_SECONDS", 0.5)
        until(lambda: listen(0.5) or " times more meanwhile)" in caplog.text)
    for consumer in consumers:
        consumer.close()


def test_other_remarks_are_not_held_back(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="headwater"):
        for place in ("one", "two", "one"):
            client_log.client_log.warning("FAIL [x#consumer-1] [thrd:main]: %s is away (after 3ms in state UP)", place)
    assert [record.getMessage().split(": ")[1][:3] for record in caplog.records] == ["one", "two"]
