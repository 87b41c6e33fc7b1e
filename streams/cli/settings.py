"""Where the commands' settings come from: a TOML file, the environment, the command line, each over the one before. It
owns how they are written and which are whose; Config checks its own, librdkafka those of Kafka's client."""

import argparse
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.errors import StreamsError, TopologyError
from headwater.streams.cli.options import CONFIG_FILE, broker, duration, size

if TYPE_CHECKING:
    from headwater.dsl.config import Config

__all__ = ["client_settings", "file_settings", "settings"]

_DURATIONS = (
    "commit_interval",
    "join_emit_interval",
    "window_emit_interval",
    "max_task_idle",
    "max_future",
    "task_timeout",
)
# The few names of librdkafka's without a dot that one would set.
_DOTLESS = ("debug", "log_level", "retries")
_NUMBERS = ("standbys", "replication_factor")
# How those settings of Kafka's clients begin or end that load a library or run a command.
_CODE_STARTS, _CODE_END = ("plugin.", "ssl.engine.", "ssl.provider"), ".cmd"
# What is not written as one of Config's own settings: a table of its own, and a result.
_NOT_OWN = {"kafka", "unmapped"}


class Given(NamedTuple):
    """Config's own settings, those with a dot (Kafka's: Streams', or its client's), and a broker's address."""

    own: dict[str, Any]
    dotted: dict[str, str]
    broker: str | None


def client_settings(args: argparse.Namespace) -> dict[str, str]:
    """Return the settings of Kafka's client for a command that runs no application."""
    return dict(settings(args, {}).kafka)


def settings(args: argparse.Namespace, given: Mapping[str, Any], app_id: str = "headwater") -> "Config":
    """Return the settings of an application; those `given` by options of their own win, its id is a last resort."""
    from dataclasses import replace

    from headwater.dsl.config import Config
    from headwater.streams.broker import is_kafka
    from headwater.streams.kafka.settings import environment_settings

    file, pairs = file_settings(args), _from_pairs(args.set)
    dotted = file.dotted | environment_settings(os.environ) | pairs.dotted
    try:
        config = Config.from_kafka({"application.id": app_id, **dotted})
        # What Kafka Streams does not know is its client's: librdkafka will say what it thinks of it.
        client = {name: dotted[name] for name in config.unmapped}
        own = {**file.own, **pairs.own, **given}
        merged = replace(config, **own, kafka={**config.kafka, **client}, unmapped=())
    except TopologyError as error:
        raise StreamsError("; ".join(error.faults)) from error
    without = [name for name in client if name in pairs.dotted]
    if without and not is_kafka(broker(args)):
        raise StreamsError(
            f"--set: Headwater has no counterpart of {', '.join(without)}: leave it out. (A setting of Kafka's client "
            "needs --broker kafka://…)"
        )
    return merged


def _from_pairs(pairs: Iterable[str]) -> Given:
    found = Given({}, {}, None)
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise StreamsError(f"--set {pair}: write --set {pair}=VALUE.")
        if "." in name or name in _DOTLESS:
            found.dotted[name] = text
        else:
            found.own[name] = _value(f"--set {name}", name, text)
    return found


def file_settings(args: argparse.Namespace) -> Given:
    """What the TOML file says: Config's settings at its top or under [app], Kafka's under [kafka]."""
    import tomllib

    path = Path(args.config or CONFIG_FILE)
    if args.config is None and not path.is_file():
        return Given({}, {}, None)
    try:
        with path.open("rb") as file:
            # Of the file that is open, not of its name, which may be another file's by now.
            status, text = os.fstat(file.fileno()), file.read().decode()
        content = tomllib.loads(text)
    except OSError as error:
        raise StreamsError(f"Cannot read {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StreamsError(f"{path} is no TOML: {error}.") from error
    address = content.pop("broker", None)
    if not isinstance(address, str | None):
        raise StreamsError(f"{path}: broker must be an address, such as kafka://localhost:9092.")
    tables = [content.pop(name, {}) for name in ("app", "kafka")]
    if not all(isinstance(table, dict) for table in tables):
        raise StreamsError(f"{path}: app and kafka must be tables: write [app], [kafka] and their settings below.")
    dotted = dict(_flat(path, "", tables[1]))
    _refuse_code(path, status, args.config is not None, dotted)
    own = {name: _value(f"{path}: {name}", name, value) for name, value in (content | tables[0]).items()}
    return Given(own, dotted, address)


def _refuse_code(path: Path, status: os.stat_result, named: bool, dotted: Mapping[str, str]) -> None:
    """Refuse what lets Kafka's client run code, unless the user named the file and nobody else can have written it."""
    found = [name for name in dotted if name.lower().startswith(_CODE_STARTS) or name.lower().endswith(_CODE_END)]
    if not found:
        return
    names = ", ".join(found)
    if not named:
        raise StreamsError(
            f"{path}: {names} can run code, so it is not taken from a file that was only found in the working "
            f"directory: name the file if you trust it (--config {path}), or give the setting itself (--set)."
        )
    # The file may be a link: neither it nor what it leads to may be another's to change.
    directories = dict.fromkeys((*path.absolute().parents, *path.resolve().parents))
    for place, seen in [(path, status), *((directory, directory.stat()) for directory in directories)]:
        if seen.st_uid not in (0, os.geteuid()):
            raise StreamsError(
                f"{path}: {names} can run code, and {place} belongs to another user (uid {seen.st_uid}): copy the file "
                "to a directory of your own and name it (--config), or give the setting itself (--set)."
            )
        # In a sticky directory, such as /tmp, others cannot replace a file that is not theirs.
        writable = seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if writable and not (stat.S_ISDIR(seen.st_mode) and seen.st_mode & stat.S_ISVTX):
            raise StreamsError(
                f"{path}: {names} can run code, and other users can write to {place}: forbid it (chmod go-w {place}), "
                "or give the setting itself (--set)."
            )


def _flat(path: Path, prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """TOML reads security.protocol = "ssl" as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(path, f"{prefix}{name}.", value)
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value)
        else:
            raise StreamsError(f"{path}: {prefix}{name} must be text, a number, true or false.")


def _value(where: str, name: str, value: Any) -> Any:
    """A setting as Config takes it; where it is written as text, it is read."""
    from dataclasses import fields

    from headwater.dsl.config import Config

    known = {field.name for field in fields(Config)} - _NOT_OWN
    if name not in known:
        names = ", ".join(sorted(known))
        raise StreamsError(f"{where}: there is no setting {name!r}, only {names}, and Kafka's own.")
    if name == "renamed" and isinstance(value, Mapping):
        # TOML has no null: nothing is the name of what is gone.
        return {old: new or None for old, new in value.items()}
    if not isinstance(value, str):
        return set(value) if isinstance(value, list) else value
    try:
        return _read(name, value)
    except argparse.ArgumentTypeError as error:
        raise StreamsError(f"{where}: {error}.") from None


def _read(name: str, text: str) -> Any:
    if name in _DURATIONS:
        return None if text == "none" else duration(text)
    if name == "cache_bytes":
        return size(text)
    if name in _NUMBERS:
        try:
            return None if text == "none" else int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if name == "renamed":
        pairs = [pair.partition("=") for pair in text.split(",")]
        if not all(equals for _, equals, _ in pairs):
            raise argparse.ArgumentTypeError(f"{text!r} should be OLD=NEW, or several with commas; OLD= is gone")
        return {old: new or None for old, _, new in pairs}
    if name in ("exactly_once", "optimize") and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return set(text.split(",")) if name == "optimize" else text
