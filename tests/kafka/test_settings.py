"""What a user's settings become before a client has them; no broker is asked."""

import logging
import sys

import pytest
from confluent_kafka import KafkaException, Producer

from headwater.errors import StreamsError
from headwater.streams.kafka import settings
from headwater.streams.kafka.settings import (
    HIDDEN,
    OWNED,
    environment_settings,
    is_secret,
    kafka_settings,
    redacted,
    without_secrets,
)

BROKER = "kafka://localhost:9092"


def test_what_is_given_reaches_every_client() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "client.id": "shop",
        "group.protocol": "classic",
    }
    assert kafka_settings(BROKER, given) == {**given, "bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    "name",
    ["group.protocol", "group.remote.assignor", "group.instance.id", "session.timeout.ms", "max.poll.interval.ms"],
)
def test_how_a_group_works_is_the_users_choice(name: str) -> None:
    value = "10000" if name.endswith(".ms") else "classic"
    assert kafka_settings(BROKER, {name: value})[name] == value


@pytest.mark.parametrize("name", [*OWNED, "error_cb", "stats_cb"])
def test_what_exactly_once_rests_on_is_refused_by_name(name: str) -> None:
    with pytest.raises(StreamsError, match=f"The Kafka setting {name} is not yours to give: .+ Leave it out"):
        kafka_settings(BROKER, {name: "x"})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("sesion.timeout.ms", "5", 'No such configuration property: "sesion.timeout.ms".: write session.timeout.ms'),
        ("nothing.like.it", "5", 'No such configuration property: "nothing.like.it".: correct it'),
        ("security.protocol", "TLS", 'Invalid value "TLS" for configuration property "security.protocol"'),
        ("session.timeout.ms", "soon", 'Invalid value for configuration property "session.timeout.ms"'),
        ("ssl.truststore.location", "a.jks", "Java TrustStores are not supported, use `ssl.ca.location`"),
        ("on_delivery", "x", "on_delivery"),
    ],
)
def test_what_librdkafka_says_of_a_setting_is_passed_on(name: str, value: str, told: str) -> None:
    with pytest.raises(StreamsError, match=told.replace("(", r"\(")) as raised:
        kafka_settings(BROKER, {name: value})
    assert "the names are librdkafka's" in str(raised.value)


def test_the_last_of_many_settings_is_looked_at_too() -> None:
    with pytest.raises(StreamsError, match=r"client\.ids"):
        kafka_settings(BROKER, {"client.id": "a", "security.protocol": "ssl", "retries": "3", "client.ids": "b"})


def test_only_text_is_a_setting() -> None:
    with pytest.raises(StreamsError, match=r"sasl\.password must be text, but is a int"):
        kafka_settings(BROKER, {"sasl.password": 5})  # type: ignore[dict-item]


SECRETS = {
    "sasl.password": "hunter2",
    "ssl.key.password": "hunter3",
    "ssl.keystore.password": "hunter4",
    "ssl.key.pem": "hunter5",
    "ssl.certificate.pem": "hunter6",
    "sasl.oauthbearer.client.secret": "hunter7",
    "sasl.oauthbearer.client.credentials.client.secret": "hunter8",
    "sasl.oauthbearer.assertion.private.key.passphrase": "hunter9",
    "sasl.oauthbearer.assertion.private.key.pem": "hunter0",
    "sasl.oauthbearer.config": "principal=hunter",
}


def test_secrets_are_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert all(map(is_secret, SECRETS))
    assert redacted({**SECRETS, "sasl.username": "ann"}) == {**dict.fromkeys(SECRETS, HIDDEN), "sasl.username": "ann"}
    assert without_secrets("hunter2 and hunter5", SECRETS) == f"{HIDDEN} and {HIDDEN}"
    with caplog.at_level(logging.DEBUG), pytest.raises(StreamsError) as raised:
        kafka_settings(BROKER, {**SECRETS, "client.ids": "b"})
    assert "hunter" not in str(raised.value) + caplog.text


def test_the_environment_gives_settings_by_their_names_in_capitals() -> None:
    environment = {
        "HEADWATER_KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "https://login",
        "HEADWATER_KAFKA_LOG_LEVEL": "3",
        "HEADWATER_BROKER": BROKER,
        "KAFKA_SECURITY_PROTOCOL": "ssl",
    }
    assert environment_settings(environment) == {
        "sasl.oauthbearer.token.endpoint.url": "https://login",
        "log_level": "3",
    }


def test_every_name_that_is_suggested_is_one_that_librdkafka_knows() -> None:
    for name in settings._NAMES:
        with pytest.raises(KafkaException) as raised:
            Producer({name: "", settings._END: ""})
        assert f'property: "{name}"' not in raised.value.args[0].str()


def test_without_the_client_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(StreamsError, match=r"run pip install 'headwater\[kafka\]'"):
        kafka_settings(BROKER, {})
