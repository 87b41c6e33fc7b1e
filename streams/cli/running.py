"""Running applications, as the commands reach them: through sockets on this machine, over HTTP at addresses that are
given, or at those that workers on Kafka tell of. It owns the options that say which are meant and how they are found;
what is asked is the commands'."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import StreamsError
from headwater.streams.cli.options import broker

if TYPE_CHECKING:
    from headwater.streams.queries import Found, Query

__all__ = ["Reached", "add_running", "app_id", "place", "reaching"]


class Reached(Protocol):
    """An application whose workers can be asked."""

    def stores(self) -> list[dict[str, Any]]:
        """Name, kind and serdes of each store."""
        ...

    def metrics(self) -> list[dict[str, Any]]:
        """What each worker has counted; nothing if nobody runs."""
        ...

    def query(self, question: "Query", *, stale: bool = False) -> "Found":
        """Rows."""
        ...


def add_running(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """Declare what says which running application is meant."""
    parser.add_argument(
        "app",
        nargs="?" if optional else None,
        metavar="APP",
        help="the application's id, or its file" + (" (default: all that run)" if optional else ""),
    )
    parser.add_argument("--state-dir", metavar="DIRECTORY", help="where it keeps its state, if it was told to")
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help="ask the worker at http://HOST:PORT, which knows of the others; may be repeated. Its token is taken from "
        "$HEADWATER_TOKEN",
    )


def app_id(app: str) -> str:
    """Return the id of an application that is named by it, or by its file.

    >>> app_id("revenue"), app_id("shop/revenue.py"), app_id("revenue.py:topology")
    ('revenue', 'revenue', 'revenue')
    """
    file = app.rpartition(":")[0] or app
    return Path(file).stem if file.endswith(".py") else app


@contextmanager
def reaching(args: argparse.Namespace) -> Iterator[Callable[[], dict[str, Reached]]]:
    """Give the function that looks which applications can be reached, of those that are meant."""
    from headwater.streams.broker import is_kafka

    name = None if args.app is None else app_id(args.app)
    if args.url:
        yield _at(args.url, name)
    elif is_kafka(broker(args)):
        from headwater.streams.cli.settings import client_settings
        from headwater.streams.kafka.settings import kafka_settings

        settings = kafka_settings(broker(args), client_settings(args))
        from headwater.streams.kafka.workers import Workers

        with closing(Workers(settings, name)) as workers:
            yield lambda: _told_of(args, name, workers.endpoints())
    else:
        yield lambda: _here(args, name)


def _at(urls: list[str], name: str | None) -> Callable[[], dict[str, Reached]]:
    from headwater.streams.http.client import RemoteApp

    app = RemoteApp(urls, app_id=name)
    found: dict[str, Reached] = {name or app.name(): app}
    return lambda: found


def _told_of(args: argparse.Namespace, name: str | None, told: dict[str, list[str | None]]) -> dict[str, Reached]:
    from headwater.streams.http.client import RemoteApp

    found = _here(args, name)
    for app, endpoints in told.items():
        urls = [endpoint for endpoint in endpoints if endpoint is not None]
        if urls:
            found[app] = RemoteApp(urls, app_id=app)
        elif name is not None and not found[name].metrics():
            found[app] = _Unheard(app, len(endpoints))
    return found


def _here(args: argparse.Namespace, name: str | None) -> dict[str, Reached]:
    """The applications that keep their state on this machine, running or not."""
    base = _directory(args)
    names = [path.name for path in sorted(base.glob("*")) if path.is_dir()] if name is None else [name]
    return {each: _LocalApp(each, base / each) for each in names}


def _directory(args: argparse.Namespace) -> Path:
    """Return the directory under which applications keep their state."""
    from headwater.streams.broker import DEFAULT_BROKER, is_kafka, log_directory

    if args.state_dir:
        return Path(args.state_dir) / "apps"
    address = broker(args)
    return log_directory(DEFAULT_BROKER if is_kafka(address) else address) / "apps"


def place(args: argparse.Namespace) -> str:
    """Say where was looked."""
    from headwater.streams.broker import is_kafka

    if args.url:
        return f"at {', '.join(args.url)}: start it (headwater run --listen …)"
    if is_kafka(broker(args)):
        return f"on {broker(args)}, or none that answers: start it (headwater run --listen …)"
    return f"on the state in {_directory(args).absolute()}: start it (headwater run)"


class _LocalApp:
    """An application whose workers run on this machine."""

    def __init__(self, name: str, directory: Path) -> None:
        from headwater.streams.sockets import SOCKETS

        self._name = name
        self._directory = directory
        self._sockets = directory / SOCKETS

    def stores(self) -> list[dict[str, Any]]:
        from headwater.streams.queries import Stores
        from headwater.streams.sockets import ask_all

        for told in ask_all(self._sockets, Stores()).values():
            return list(told)
        raise self._nobody()

    def metrics(self) -> list[dict[str, Any]]:
        from headwater.streams.queries import Metrics
        from headwater.streams.sockets import ask_all

        return list(ask_all(self._sockets, Metrics()).values())

    def query(self, question: "Query", *, stale: bool = False) -> "Found":
        from headwater.streams.sockets import query

        found = query(self._sockets, question)
        if found is None:
            raise self._nobody()
        return found

    def _nobody(self) -> StreamsError:
        there = sorted(path.name for path in self._directory.parent.glob("*") if path.is_dir())
        known = f" Applications there: {', '.join(there)}." if there and self._name not in there else ""
        return StreamsError(
            f"No worker of {self._name!r} is running on the state in {self._directory}: start it (headwater run), or "
            f"correct the id or --broker.{known}"
        )


class _Unheard:
    """An application whose workers run elsewhere and answer nobody."""

    def __init__(self, name: str, workers: int) -> None:
        self._fault = StreamsError(
            f"{name!r} has {workers} worker{'' if workers == 1 else 's'}, but none that answers questions: start them "
            "with --listen."
        )

    def stores(self) -> list[dict[str, Any]]:
        raise self._fault

    def metrics(self) -> list[dict[str, Any]]:
        raise self._fault

    def query(self, question: "Query", *, stale: bool = False) -> "Found":
        raise self._fault
