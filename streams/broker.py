"""Broker addresses: from the text a user gives to a log that is open. It owns which schemes there are and what a wrong
address is told; what a log holds is the log's."""

from pathlib import Path

from headwater.errors import StreamsError
from headwater.state.log import Log

__all__ = ["DEFAULT_BROKER", "log_directory", "open_log"]

DEFAULT_BROKER = "log://./.headwater"
_SCHEME = "log://"


def log_directory(broker: str) -> Path:
    """Return the directory that a `log://<directory>` address names; StreamsError for any other address.

    >>> log_directory("log://./.headwater"), log_directory("log:///var/log/shop")
    (PosixPath('.headwater'), PosixPath('/var/log/shop'))
    >>> log_directory("kafka://localhost:9092")
    Traceback (most recent call last):
    headwater.errors.StreamsError: Broker 'kafka://localhost:9092': Kafka is not there yet, only the embedded log is: \
write log://<directory>, such as log://./.headwater.
    """
    scheme, separator, rest = broker.partition("://")
    if f"{scheme}://" == _SCHEME and rest and "\0" not in rest:
        return Path(rest).expanduser()
    if scheme == "kafka":
        fault = "Kafka is not there yet, only the embedded log is"
    elif separator and scheme != "log":
        fault = f"there is no scheme {scheme!r}, only log"
    elif separator:
        fault = "the directory is missing"
    else:
        fault = "the scheme is missing"
    raise StreamsError(f"Broker {broker!r}: {fault}: write log://<directory>, such as {DEFAULT_BROKER}.")


def open_log(broker: str, *, create: bool = True) -> Log:
    """Return the log at the address; one that is not there is made, or is an error unless `create`."""
    directory = log_directory(broker)
    if not create and not (directory / "log").is_file():
        raise StreamsError(
            f"There is no log in {directory.absolute()}: create a topic there (headwater topics create), "
            "or give the address of another (--broker log://<directory>)."
        )
    return Log.open(directory)
