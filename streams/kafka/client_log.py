"""What Kafka's client says of itself, as far as anyone should read it: a client without a broker says so twenty times a
second, and a worker has five of them. It owns the logger that all clients are given, and what is left out of it.
"""

import logging
import re
import time

__all__ = ["client_log"]

# How long a remark is not repeated, and how many different ones are kept in mind.
QUIET_SECONDS = 30.0
MOST = 1_000
# Which client and thread of the process it was, and how long it took, do not make it another remark.
_PASSING = re.compile(r"\[[^\]]*#(?:consumer|producer)-\d+\] |\[thrd:[^\]]*\]: |\(after \d+ms in state .*")


class _Once(logging.Filter):
    """Lets a remark through once in a while, with how often it was made meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        remark = _PASSING.sub("", record.getMessage())
        now = time.monotonic()
        said, more = self._said.get(remark, (now - QUIET_SECONDS, 0))
        if now - said < QUIET_SECONDS:
            self._said[remark] = said, more + 1
            return False
        if len(self._said) >= MOST:
            self._said.clear()
        self._said[remark] = now, 0
        if more:
            record.msg, record.args = f"{record.getMessage()} ({more:,} times more meanwhile)", ()
        return True


client_log = logging.getLogger("headwater.kafka")
client_log.addFilter(_Once())
