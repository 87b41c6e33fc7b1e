"""What an option may be: True or False, a number, one of some words, a name. Python takes any object for true, so that
`memory="no"` would switch it on: every public option is checked here, and the fault says what it must be."""

from collections.abc import Collection

from headwater.errors import StreamsError

__all__ = ["check_flag", "choice_fault", "flag_fault", "number_fault", "text_fault"]


def flag_fault(argument: str, value: object, *, optional: bool = False) -> str | None:
    """What is wrong with something given as a switch, or None; `optional`: None leaves it open.

    >>> flag_fault("KeyValue('s'): memory", True)
    >>> flag_fault("KeyValue('s'): memory", "no")
    "KeyValue('s'): memory must be True or False, but is 'no'"
    """
    if value is True or value is False or (optional and value is None):
        return None
    return f"{argument} must be True or False{', or None' if optional else ''}, but is {value!r:.80}"


def check_flag(argument: str, value: object) -> None:
    """Raise a StreamsError unless a switch is True or False.

    >>> check_flag("run: block", "no")
    Traceback (most recent call last):
    headwater.errors.StreamsError: run: block must be True or False, but is 'no'
    """
    fault = flag_fault(argument, value)
    if fault:
        raise StreamsError(fault)


def number_fault(argument: str, value: object, least: int = 0, *, optional: bool = False) -> str | None:
    """What is wrong with something given as a whole number, or None.

    >>> number_fault("partitions=", True, 1)
    'partitions= must be a number, at least 1, but is True'
    """
    if (type(value) is int and value >= least) or (optional and value is None):
        return None
    return f"{argument} must be a number, at least {least}{', or None' if optional else ''}, but is {value!r:.80}"


def choice_fault(argument: str, value: object, choices: Collection[str]) -> str | None:
    """What is wrong with something that must be one of some words, or None.

    >>> choice_fault("emit=", "later", ("per-record", "per-batch"))
    'emit= must be "per-record" or "per-batch", but is \\'later\\''
    """
    if isinstance(value, str) and value in choices:
        return None
    wanted = " or ".join(f'"{choice}"' for choice in choices)
    return f"{argument} must be {wanted}, but is {value!r:.80}"


def text_fault(argument: str, value: object, *, optional: bool = True) -> str | None:
    """What is wrong with something given as a name or another text, or None.

    >>> text_fault("name=", 5)
    'name= must be text, but is 5'
    """
    if isinstance(value, str) or (optional and value is None):
        return None
    return f"{argument} must be text, but is {value!r:.80}"
