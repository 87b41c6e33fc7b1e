"""What means the same on the embedded log and on Kafka is tested on both: a mark for such tests, and their broker."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, StreamsError

# For a test with a fixture `broker`, which gives what `empty_broker` does.
BOTH = pytest.mark.parametrize("broker", ["log", "kafka"], indirect=True)


def empty_broker(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The address of an empty broker: an embedded log in the folder, unless the test asks for Kafka too."""
    if getattr(request, "param", "log") == "log":
        yield f"log://{folder}"
        return
    address = f"kafka://{request.getfixturevalue('kafka').bootstrap}"
    # A busy broker takes longer to let the first member of its first group in.
    request.getfixturevalue("monkeypatch").setattr("headwater.streams.kafka.consumer._JOIN_SECONDS", 60.0)
    # Other tests leave there what they had; and are left nothing.
    _empty(address)
    yield address
    _empty(address)


def _empty(address: str) -> None:
    admin = Admin(address)
    for topic in admin.topics():
        admin.delete_topic(topic.name)
    deadline = time.monotonic() + 30
    for group in admin.groups():
        while True:
            try:
                admin.delete_group(group)
                break
            except StreamsError:
                # Members that were killed are there until their session is over.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
