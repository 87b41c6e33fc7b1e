"""The settings of Kafka's clients: from a broker's address and what the user gives to what librdkafka takes. It owns
which settings are Headwater's own, which are secret, and what a wrong one is told; librdkafka owns what they mean. The
client itself is imported only when it is asked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from headwater.errors import StreamsError
from headwater.streams.broker import bootstrap_servers

__all__ = [
    *("HIDDEN", "environment_settings", "for_consumers", "for_lone_consumers", "for_producers", "is_secret"),
    *("kafka_settings", "redacted", "without_secrets"),
]

HIDDEN = "(hidden)"
PREFIX = "HEADWATER_KAFKA_"

# Exactly once, the order of a key's records and the members of a group rest on these.
_COMMITS = "when offsets are committed is Headwater's to say (commit_interval=)"
_WRITES = "Headwater's producers are idempotent and wait for all in-sync replicas"
_STARTS = "where reading starts is said by reset= of a source, or start= of a Consumer"
_EVENTS = "Headwater needs what it reports"
OWNED: Mapping[str, str] = {
    "bootstrap.servers": "the broker's address says it (kafka://<host>:<port>,…)",
    "metadata.broker.list": "the broker's address says it (kafka://<host>:<port>,…)",
    "group.id": "the group of an application is its app_id, that of a Consumer its group=",
    "group.protocol.type": "it is always consumer",
    "transactional.id": "each worker has one of its own",
    "isolation.level": "Headwater reads what is committed",
    "partitioner": "a key's partition is the one of Kafka's Java client (murmur2)",
    "partition.assignment.strategy": "what is joined must be assigned together; choose group.remote.assignor instead",
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "offset.store.method": _COMMITS,
    "auto.offset.reset": _STARTS,
    "enable.idempotence": _WRITES,
    "acks": _WRITES,
    "request.required.acks": _WRITES,
    "enable.partition.eof": _EVENTS,
    "delivery.report.only.error": _EVENTS,
    "enabled_events": _EVENTS,
    "logger": _EVENTS,
}
# What a name ends in if its value is nobody's business.
_SECRETS = ("password", "passphrase", "secret", ".pem", "jaas.config", "oauthbearer.config", "oauthbearer.extensions")
# For suggestions only: librdkafka says what it knows, but not what that is.
_TEXT = """
allow.auto.create.topics api.version.request broker.address.family broker.address.ttl broker.version.fallback
check.crcs client.dns.lookup client.id client.rack compression.codec compression.level compression.type
connections.max.idle.ms debug delivery.timeout.ms enable.metrics.push enable.sasl.oauthbearer.unsecure.jwt
enable.ssl.certificate.verification fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
fetch.queue.backoff.ms fetch.wait.max.ms group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
https.ca.location linger.ms log.connection.close log_level max.in.flight.requests.per.connection
max.partition.fetch.bytes max.poll.interval.ms message.max.bytes message.send.max.retries message.timeout.ms
metadata.max.age.ms metadata.recovery.strategy queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages batch.num.messages batch.size
receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.principal
sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.method sasl.oauthbearer.scope
sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol session.timeout.ms
socket.connection.setup.timeout.ms socket.keepalive.enable socket.nagle.disable socket.receive.buffer.bytes
socket.send.buffer.bytes socket.timeout.ms ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.key.location
ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.sigalgs.list statistics.interval.ms
sticky.partitioning.linger.ms topic.metadata.refresh.interval.ms transaction.timeout.ms
"""
_NAMES = _TEXT.split()
# How the names of settings begin that only consumers, or only producers, know: the others would warn of each.
_CONSUMERS = ("check.crcs", "fetch.", "group.", "heartbeat.", "max.partition.", "max.poll.", "queued.", "session.")
_MEMBERS = ("group.", "heartbeat.", "max.poll.", "session.")
_PRODUCERS = (
    *("batch.", "compression.", "delivery.", "linger.", "message.send.", "message.timeout.", "queue.buffering."),
    *("request.timeout.", "retries", "sticky.", "transaction."),
)
# A name no client has: if librdkafka refuses this one, it has taken all that stand before it.
_END = "headwater.end.of.settings"


def kafka_settings(broker: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with which every client of the cluster begins; StreamsError for what cannot be among them.

    >>> kafka_settings("kafka://localhost:9092", {"security.protocol": "ssl"})
    {'client.id': 'headwater', 'security.protocol': 'ssl', 'bootstrap.servers': 'localhost:9092'}
    >>> kafka_settings("kafka://localhost:9092", {"security.protocal": "ssl"})
    Traceback (most recent call last):
    headwater.errors.StreamsError: Kafka's client does not take its settings (No such configuration property: \
"security.protocal"): write security.protocol, or correct it; the names are librdkafka's.
    >>> kafka_settings("kafka://localhost:9092", {"group.id": "shop"})
    Traceback (most recent call last):
    headwater.errors.StreamsError: The Kafka setting group.id is not yours to give: the group of an application is \
its app_id, that of a Consumer its group=. Leave it out.
    """
    servers = bootstrap_servers(broker)
    for name, value in given.items():
        if name in OWNED or name.endswith("_cb"):
            raise StreamsError(
                f"The Kafka setting {name} is not yours to give: {OWNED.get(name, _EVENTS)}. Leave it out."
            )
        if not isinstance(value, str):
            raise StreamsError(f"The Kafka setting {name} must be text, but is a {type(value).__name__}.")
    said = _complaint(given)
    if said is not None:
        unknown = next((name for name in given if f'property: "{name}"' in said), None)
        near = difflib.get_close_matches(unknown, _NAMES, 1) if unknown else []
        remedy = f"write {near[0]}, or correct it" if near else "correct it"
        raise StreamsError(
            f"Kafka's client does not take its settings ({without_secrets(said, given)}): {remedy}; the names are "
            "librdkafka's."
        )
    return {"client.id": "headwater", **given, "bootstrap.servers": servers}


def _complaint(given: Mapping[str, str]) -> str | None:
    """What librdkafka says of names and values, None if it takes them; of files and of what does not go together it
    speaks when a client is made."""
    try:
        from confluent_kafka import KafkaException, Producer
    except ModuleNotFoundError as error:
        raise StreamsError(
            f"Kafka's client is not installed ({error.name} is missing): run pip install 'headwater[kafka]'."
        ) from error
    try:
        Producer({**given, _END: ""})
    except KafkaException as error:
        said = str(error.args[0].str()).strip()
        return None if _END in said else said
    except TypeError as error:
        return str(error)
    raise AssertionError(f"librdkafka knows {_END}")


def for_consumers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a consumer knows.

    >>> for_consumers({"linger.ms": "5", "fetch.min.bytes": "1", "sasl.username": "shop"})
    {'fetch.min.bytes': '1', 'sasl.username': 'shop'}
    """
    return {name: value for name, value in settings.items() if not name.startswith(_PRODUCERS)}


def for_lone_consumers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a consumer that reads alone: it commits nothing, is told where partitions end, and how long its
    worker may be busy is the group's affair. It needs a group's name all the same.

    >>> lone = for_lone_consumers({"max.poll.interval.ms": "5000", "fetch.min.bytes": "1", "group.instance.id": "one"})
    >>> lone["fetch.min.bytes"], lone["max.poll.interval.ms"], lone["enable.partition.eof"], "group.instance.id" in lone
    ('1', 86400000, True, False)
    """
    known = {name: value for name, value in for_consumers(settings).items() if not name.startswith(_MEMBERS)}
    return {
        **known,
        "group.protocol": "classic",
        "max.poll.interval.ms": 24 * 3600 * 1000,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }


def for_producers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a producer, or an administrator, knows.

    >>> for_producers({"linger.ms": "5", "fetch.min.bytes": "1", "sasl.username": "shop"})
    {'linger.ms': '5', 'sasl.username': 'shop'}
    """
    return {name: value for name, value in settings.items() if not name.startswith(_CONSUMERS)}


def is_secret(name: str) -> bool:
    """Whether a setting's value must never be shown.

    >>> is_secret("sasl.password"), is_secret("ssl.key.pem"), is_secret("sasl.username")
    (True, True, False)
    """
    return name.lower().endswith(_SECRETS)


def redacted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they may be shown.

    >>> redacted({"sasl.username": "shop", "sasl.password": "hunter2"})
    {'sasl.username': 'shop', 'sasl.password': '(hidden)'}
    """
    return {name: HIDDEN if is_secret(name) else value for name, value in settings.items()}


def without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """A text with every secret of the settings taken out.

    >>> without_secrets("hunter2 is refused", {"sasl.password": "hunter2"})
    '(hidden) is refused'
    """
    for name, value in settings.items():
        if value and is_secret(name):
            text = text.replace(str(value), HIDDEN)
    return text


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that the environment gives: HEADWATER_KAFKA_ and a name in capitals, `_` for its dots.

    >>> environment_settings({"HEADWATER_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "HEADWATER_KAFKA_LOG_LEVEL": "7"})
    {'security.protocol': 'SASL_SSL', 'log_level': '7'}
    """
    # The few names with a `_` of their own.
    known = {name.replace("_", "."): name for name in _NAMES if "_" in name}
    found = {}
    for variable, value in environment.items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower().replace("_", ".")
            found[known.get(name, name)] = value
    return found
