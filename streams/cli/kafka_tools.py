"""The spelling of Kafka's own tools, next to ours: fingers know kafka-topics, kafka-consumer-groups and the two
consoles. It owns how their words become those of our commands; what these do is theirs."""

from collections.abc import Iterable, Sequence

from headwater.errors import StreamsError

__all__ = ["properties", "translated"]

_TOPICS = {f"--{word}": word for word in ("create", "list", "describe", "alter", "delete")}
_GROUPS = {"--list": "list", "--describe": "describe", "--reset-offsets": "reset-offsets", "--delete": "delete"}
# What their tools must be told and ours need not be.
_NEEDLESS = {"--all-topics", "--all-groups", "--exclude-internal", "--execute"}


def translated(words: Sequence[str]) -> list[str]:
    """A command line in which the words of Kafka's tools are ours; any other stays as it is.

    >>> translated(["topics", "--create", "--topic", "orders", "--partitions", "3"])
    ['topics', 'create', 'orders', '--partitions', '3']
    >>> translated(["consume", "--topic", "orders", "--from-beginning"])
    ['consume', 'orders', '--from-beginning']
    >>> translated(["groups", "--reset-offsets", "--group", "kitchen", "--topic", "orders:0", "--to-earliest"])
    ['groups', 'reset-offsets', 'kitchen', '--to-earliest', '--topic', 'orders', '--partition', '0', '--dry-run']
    """
    match list(words):
        case ["topics", *rest]:
            command, rest = _command(_TOPICS, rest)
            names, rest = _taken("--topic", rest)
            return ["topics", *command, *names, *rest]
        case [("produce" | "consume") as command, *rest]:
            names, rest = _taken("--topic", rest)
            return [command, *names, *rest]
        case ["groups", *rest] if any(word in _GROUPS for word in rest):
            return ["groups", *_groups(rest)]
        case unchanged:
            return unchanged


def _command(known: dict[str, str], words: list[str]) -> tuple[list[str], list[str]]:
    """Take out the command that is written as an option, or as ours is, and what is needless beside the former."""
    found = [known[word] for word in words if word in known]
    if len(found) == 1:
        return found, [word for word in words if word not in known and word not in _NEEDLESS]
    # Ours comes first; without any, argparse says what there is.
    return words[:1], words[1:]


def _taken(option: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Take out an option's values, wherever they stand."""
    values, rest, at = [], [], 0
    while at < len(words):
        word = words[at]
        if word == option and at + 1 < len(words):
            values.append(words[at + 1])
            at += 1
        elif word.startswith(f"{option}="):
            values.append(word.partition("=")[2])
        else:
            rest.append(word)
        at += 1
    return values, rest


def _groups(words: list[str]) -> list[str]:
    (command, *_), rest = _command(_GROUPS, words)
    names, rest = _taken("--group", rest)
    topics, rest = _taken("--topic", rest)
    times, rest = _taken("--to-datetime", rest)
    for topic in topics:
        name, _, numbers = topic.partition(":")
        rest += ["--topic", name]
        for number in numbers.split(",") if numbers else ():
            rest += ["--partition", number]
    for time in times:
        rest += ["--to-time", time]
    if command == "reset-offsets" and "--execute" not in words and "--dry-run" not in words:
        # Theirs changes nothing unless it is told to.
        rest.append("--dry-run")
    return [command, *names, *rest]


def properties(pairs: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """What --property KEY=VALUE says; the keys are those of Kafka's consoles.

    >>> properties(["parse.key=true", "key.separator=-"], ["parse.key", "key.separator"])
    {'parse.key': 'true', 'key.separator': '-'}
    """
    names, found = list(known), {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or name not in names:
            raise StreamsError(f"--property {pair}: write {', '.join(f'{known}=…' for known in names)}.")
        found[name] = value
    return found
