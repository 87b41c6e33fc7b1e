"""Settings of librdkafka as those of Kafka's Java client, which Spark reads with. It owns which of them are the same,
how certificates and passwords are said to Java, and the refusal of what Java has nothing like; nothing is read but
certificates and keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.errors import StreamsError

__all__ = ["java_settings"]

# Where a client is told how to trust and whom: what Java cannot be told must not be passed over in silence.
_SECURITY = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "https.")
_SAME = frozenset(
    {
        *("client.id", "client.rack", "client.dns.lookup", "connections.max.idle.ms", "metadata.max.age.ms"),
        *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "fetch.min.bytes", "fetch.max.bytes"),
        *("max.partition.fetch.bytes", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
        *("sasl.mechanism", "sasl.kerberos.service.name", "sasl.kerberos.kinit.cmd"),
    }
)
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PKCS8 = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def java_settings(given: Mapping[str, str]) -> dict[str, str]:
    """What Java's client must be told to trust and be trusted as librdkafka's is; buffers and the like are its own.

    >>> java_settings({"security.protocol": "ssl", "ssl.ca.location": "/etc/ca.pem", "queued.min.messages": "1000"})
    {'security.protocol': 'SSL', 'ssl.truststore.type': 'PEM', 'ssl.truststore.location': '/etc/ca.pem'}
    >>> java_settings({"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": 'a"b'})["sasl.jaas.config"]
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a\\\\"b";'
    """
    left = {name: value for name, value in given.items() if name in _SAME or name.startswith(_SECURITY)}
    if "sasl.mechanisms" in left:
        left["sasl.mechanism"] = left.pop("sasl.mechanisms")
    found = {name: left.pop(name) for name in list(left) if name in _SAME}
    if "security.protocol" in left:
        found["security.protocol"] = left.pop("security.protocol").upper()
    found |= _login(left, found.get("sasl.mechanism", "GSSAPI").upper()) | _trust(left) | _identity(left)
    if left:
        raise StreamsError(
            f"Spark reads Kafka with Java's client, which has nothing like {', '.join(sorted(left))}: say the same "
            "with PEM files (ssl.ca.location, ssl.certificate.location, ssl.key.location), PKCS#12 "
            "(ssl.keystore.location) or SASL's PLAIN and SCRAM, or leave it out."
        )
    return found


def _login(left: dict[str, str], mechanism: str) -> dict[str, str]:
    if mechanism not in _MODULES or "sasl.username" not in left:
        return {}
    name, password = left.pop("sasl.username"), left.pop("sasl.password", "")
    words = f"username={_quoted(name)} password={_quoted(password)}"
    return {"sasl.jaas.config": f"{_MODULES[mechanism]} required {words};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _trust(left: dict[str, str]) -> dict[str, str]:
    """Whom to trust. The file is named and not read: librdkafka, which writes, needs it on the executors too."""
    found: dict[str, str] = {}
    if "ssl.ca.location" in left:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": left.pop("ssl.ca.location")}
    if "ssl.ca.pem" in left:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": left.pop("ssl.ca.pem")}
    how = left.pop("ssl.endpoint.identification.algorithm", None)
    if how is not None:
        found["ssl.endpoint.identification.algorithm"] = "" if how == "none" else how
    if left.get("enable.ssl.certificate.verification", "").lower() == "true":
        del left["enable.ssl.certificate.verification"]
    return found


def _identity(left: dict[str, str]) -> dict[str, str]:
    """What to be trusted by: a certificate and its key, which Java takes from one file or, as here, as text."""
    found: dict[str, str] = {}
    if "ssl.keystore.location" in left:
        found |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": left.pop("ssl.keystore.location")}
        if "ssl.keystore.password" in left:
            found["ssl.keystore.password"] = left.pop("ssl.keystore.password")
    certificate, key = _pem(left, "ssl.certificate"), _pem(left, "ssl.key")
    if certificate is not None and key is not None:
        if not key.lstrip().startswith(_PKCS8):
            raise StreamsError(
                "Spark reads Kafka with Java's client, which takes a key in PKCS#8 only (BEGIN PRIVATE KEY): convert "
                "it (openssl pkcs8 -topk8 -nocrypt -in old.pem -out key.pem)."
            )
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
        if "ssl.key.password" in left:
            found["ssl.key.password"] = left.pop("ssl.key.password")
    return found


def _pem(left: dict[str, str], name: str) -> str | None:
    text = left.pop(f"{name}.pem", None)
    path = left.pop(f"{name}.location", None)
    if path is None:
        return text
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StreamsError(f"The Kafka setting {name}.location: {path} cannot be read ({error}).") from error
