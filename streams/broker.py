"""Broker addresses: an embedded log's, or a Kafka cluster's. It owns which schemes there are, how an address is read
and what a wrong one is told; what a log or a cluster holds is theirs."""

import re
from pathlib import Path

from headwater.errors import StreamsError
from headwater.state.log import Log

__all__ = ["DEFAULT_BROKER", "bootstrap_servers", "is_kafka", "log_directory", "open_log"]

DEFAULT_BROKER = "log://./.headwater"
_FORMS = f"write log://<directory>, such as {DEFAULT_BROKER}, or kafka://<host>:<port>"
_KAFKA_PORT = 9092
# A name, an IPv4 address or an IPv6 address in brackets; the port may be left out.
_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])(?::(\d{1,5}))?")


def is_kafka(broker: str) -> bool:
    """Whether an address is a Kafka cluster's; StreamsError for one that is neither a cluster's nor a log's.

    >>> is_kafka("kafka://localhost:9092"), is_kafka("log://./.headwater")
    (True, False)
    >>> is_kafka("localhost:9092")
    Traceback (most recent call last):
    headwater.errors.StreamsError: Broker 'localhost:9092': the scheme is missing: write log://<directory>, such as \
log://./.headwater, or kafka://<host>:<port>.
    """
    scheme, separator, rest = broker.partition("://")
    if not separator:
        fault = "the scheme is missing"
    elif scheme not in ("log", "kafka"):
        fault = f"there is no scheme {scheme!r}, only log and kafka"
    elif not rest or "\0" in rest:
        fault = "the directory is missing" if scheme == "log" else "the hosts are missing"
    else:
        return scheme == "kafka"
    raise StreamsError(f"Broker {broker!r}: {fault}: {_FORMS}.")


def bootstrap_servers(broker: str) -> str:
    """Return the servers that a `kafka://<host>:<port>,…` address names, as Kafka's clients take them.

    >>> bootstrap_servers("kafka://one:9092,two:9093"), bootstrap_servers("kafka://[::1]")
    ('one:9092,two:9093', '[::1]:9092')
    """
    if not is_kafka(broker):
        raise StreamsError(f"Broker {broker!r} is an embedded log, and this needs Kafka: write kafka://<host>:<port>.")
    servers = []
    for server in broker.removeprefix("kafka://").split(","):
        found = _SERVER.fullmatch(server)
        if "@" in server:
            # Not repeated: what stands before it is likely a password.
            raise StreamsError(
                "A kafka:// address holds no user and password: write kafka://<host>:<port>, and give them as the "
                "settings sasl.username and sasl.password."
            )
        if found is None or int(found[2] or _KAFKA_PORT) > 65535:
            raise StreamsError(
                f"Broker {broker!r}: {server!r} is no server: write kafka://<host>:<port>, several separated by commas."
            )
        servers.append(f"{found[1]}:{found[2] or _KAFKA_PORT}")
    return ",".join(servers)


def log_directory(broker: str) -> Path:
    """Return the directory that a `log://<directory>` address names; StreamsError for any other address.

    >>> log_directory("log://./.headwater"), log_directory("log:///var/log/shop")
    (PosixPath('.headwater'), PosixPath('/var/log/shop'))
    """
    if is_kafka(broker):
        raise StreamsError(
            f"Broker {broker!r} is a Kafka cluster, and this needs an embedded log: write log://<directory>, such as "
            f"{DEFAULT_BROKER}."
        )
    return Path(broker.removeprefix("log://")).expanduser()


def open_log(broker: str, *, create: bool = True) -> Log:
    """Return the log at the address; one that is not there is made, or is an error unless `create`."""
    directory = log_directory(broker)
    if not create and not (directory / "log").is_file():
        raise StreamsError(
            f"There is no log in {directory.absolute()}: create a topic there (headwater topics create), "
            "or give the address of another (--broker log://<directory>)."
        )
    return Log.open(directory)
