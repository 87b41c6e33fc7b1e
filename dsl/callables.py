"""User callables: how many parameters one takes and where it was written. It owns the choice between the short and the
keyed form and the text of a fault; which step a callable belongs to is added by whoever collects the faults."""

import functools
import inspect
import sys
import types
from typing import Any

from headwater.dsl.expressions import Expression

__all__ = ["check", "is_expression", "keyed", "place"]


def is_expression(slot: object) -> bool:
    """Whether a callable's slot holds a column expression, in the form that steps can call."""
    return hasattr(slot, "__headwater_expression__")


def keyed(f: object, short: int = 1) -> bool:
    """Whether a callable wants the key in front of its `short` parameters; a ValueError says what is wrong with it.

    The keyed form is used only when exactly one more positional parameter is required.

    >>> keyed(lambda value: value), keyed(lambda key, value: value), keyed(lambda value, extra=1: value), keyed(int)
    (False, True, False, False)
    """
    signature = _signature(f)
    if signature is None:
        return False
    required, most = _positional(signature)
    if most is None:
        raise ValueError(
            f"{place(f)}: the callable takes {signature}, so it is unclear whether it wants the key: "
            f"name its {short} parameters, or {short + 1} with the key first"
        )
    if required == short + 1:
        return True
    if required <= short <= most:
        return False
    raise ValueError(
        f"{place(f)}: the callable must take {_parameters(short)}, or {short + 1} with the key first, "
        f"but takes {signature}"
    )


def check(f: object, positional: int) -> None:
    """Nothing, if a callable can be called with so many positional arguments; a ValueError says why it cannot.

    >>> check(lambda key, value: None, 2)
    >>> check(print, 2)
    >>> check(5, 2)
    Traceback (most recent call last):
    ValueError: a callable is needed, but this is int 5
    """
    signature = _signature(f)
    if signature is None:
        return
    required, most = _positional(signature)
    if required > positional or (most is not None and most < positional):
        raise ValueError(f"{place(f)}: the callable must take {_parameters(positional)}, but takes {signature}")


def place(f: object) -> str:
    """Where a callable was written, as module:line; its dotted name if no line is known.

    >>> place(len), place(functools.partial(int, base=2))
    ('builtins.len', 'builtins.int')
    """
    if is_expression(f):
        return repr(f)
    f = _innermost(f)
    if isinstance(f, types.MethodType):
        f = _innermost(f.__func__)
    if isinstance(f, types.FunctionType):
        return f"{f.__module__}:{f.__code__.co_firstlineno}"
    if isinstance(f, types.BuiltinFunctionType) and f.__module__:
        return f"{f.__module__}.{f.__name__}"
    kind, methods = (f, vars(f)) if isinstance(f, type) else (type(f), ["__call__"])
    # A class does not know its own line before Python 3.13: take that of its first method.
    for name in methods:
        method = inspect.getattr_static(kind, name, None)
        if isinstance(method, types.FunctionType) and _stands_in_its_module(method):
            return f"{method.__module__}:{method.__code__.co_firstlineno}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _stands_in_its_module(method: types.FunctionType) -> bool:
    """Whether a method stands in its module's file; those that dataclasses writes do not."""
    return method.__code__.co_filename == getattr(sys.modules.get(method.__module__), "__file__", None)


def _parameters(count: int) -> str:
    return "no parameter" if count == 0 else "1 parameter" if count == 1 else f"{count} parameters"


# Anything else whose __call__ is written in C (itemgetter, for one) has no signature, or claims (*args, **kwargs).
_READABLE = (
    type,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)


def _innermost(f: Any) -> Any:
    while isinstance(f, functools.partial):
        f = f.func
    return inspect.unwrap(f)


def _signature(f: object) -> inspect.Signature | None:
    """The signature of a callable; None if it has no readable one."""
    if isinstance(f, Expression):
        raise ValueError(
            f"a function is needed here, but this is the expression {f!r}: write a lambda (expressions are for filter, "
            "map_values, select, select_key, group_by, branch and the like)"
        )
    if not callable(f):
        raise ValueError(f"a callable is needed, but this is {type(f).__name__} {f!r:.80}")
    inner = _innermost(f)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise ValueError(f"{place(f)}: the callable is async, but it is called without await: make it a plain function")
    if not isinstance(inner, _READABLE) and isinstance(type(inner).__call__, types.WrapperDescriptorType):
        return None
    try:
        signature = inspect.signature(f)
    except (ValueError, TypeError):
        return None
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise ValueError(
                f"{place(f)}: the callable requires the keyword {parameter.name}=, but is called with positional "
                f"arguments only: give it a default or bind it with functools.partial"
            )
    return signature


def _positional(signature: inspect.Signature) -> tuple[int, int | None]:
    """How many positional arguments are required, and how many are accepted (None: any number)."""
    required = most = 0
    endless = False
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            required += parameter.default is parameter.empty
        endless = endless or parameter.kind is parameter.VAR_POSITIONAL
    return required, None if endless else most
