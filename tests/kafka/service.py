"""A worker in a process of its own, which can be asked, held back and killed."""

import logging
import multiprocessing
import resource
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.kafka.broker import PATIENCE
from tests.kafka.place import Plot

SPAWN = multiprocessing.get_context("spawn")


class Service:
    """An application that a process of its own has started; what it logs is in a file."""

    def __init__(self, plot: Plot, log: Path, *, limit: int | None = None, **settings: Any) -> None:
        self._log = log
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(plot, settings, limit, log, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, what: str, *arguments: Any) -> Any:
        """Have the application do something: `metrics`, `wait_idle`, `stop`, or be short of disk (`limit`)."""
        self._pipe.send((what, arguments))
        assert self._pipe.poll(2 * PATIENCE), f"no answer to {what}"
        return self._pipe.recv()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        """Stop it in order."""
        assert self.ask("stop") is None
        self._process.join(PATIENCE)


def _serve(plot: Plot, settings: dict[str, Any], limit: int | None, log: Path, pipe: Connection) -> None:
    logging.basicConfig(filename=log, level=logging.INFO, format="%(message)s")
    if limit is not None:
        _limit(limit)
    app = plot.app(**settings)
    try:
        app.start()
    except Exception:
        logging.exception("it does not start")
    while True:
        try:
            what, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_limit(*arguments) if what == "limit" else getattr(app, what)(*arguments))
        except Exception as error:
            pipe.send(repr(error))
        if what == "stop":
            return


def _limit(size: int) -> None:
    """No file may grow beyond this size: to whoever writes it, the disk is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
