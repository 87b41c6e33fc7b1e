"""User callables: how many parameters one takes, whether calling it runs it, and where it was written. It owns the
choice between the short and the keyed form and the text of a fault; which step a callable belongs to is added by
whoever collects the faults."""

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from headwater.dsl.expressions import Expression

__all__ = [
    "check",
    "check_ran",
    "condition",
    "is_expression",
    "keyed",
    "place",
    "processor_faults",
    "supplier_faults",
    "unrun",
]


def is_expression(slot: object) -> bool:
    """Whether a callable's slot holds a column expression, in the form that steps can call."""
    return hasattr(slot, "__headwater_expression__")


def keyed(f: object, short: int = 1, *, iterates: bool = False) -> bool:
    """Whether a callable wants the key in front of its `short` parameters; a ValueError says what is wrong with it.

    The keyed form is used only when exactly one more positional parameter is required. `iterates`: the step goes
    through what the callable returns, so that it may be a generator.

    >>> keyed(lambda value: value), keyed(lambda key, value: value), keyed(lambda value, extra=1: value), keyed(int)
    (False, True, False, False)
    """
    signature = _signature(f, iterates)
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


def check(f: object, positional: int, *, iterates: bool = False) -> None:
    """Nothing, if a callable can be called with so many positional arguments; a ValueError says why it cannot.

    `iterates` is that of `keyed`.

    >>> check(lambda key, value: None, 2)
    >>> check(print, 2)
    >>> check(5, 2)
    Traceback (most recent call last):
    ValueError: a callable is needed, but this is int 5
    """
    signature = _signature(f, iterates)
    if signature is None:
        return
    required, most = _positional(signature)
    if required > positional or (most is not None and most < positional):
        raise ValueError(f"{place(f)}: the callable must take {_parameters(positional)}, but takes {signature}")


def unrun(f: object, *, iterates: bool = False) -> str | None:
    """Why calling a function would not run it, and what to do; None if it would.

    >>> async def later(value): ...
    >>> unrun(later)
    'it is async, so a call only makes a coroutine, which nothing awaits: make it a plain function'
    >>> def each(value): yield value
    >>> unrun(each)
    'it has a yield, so a call only makes a generator, which nothing runs: return the result instead'
    >>> unrun(each, iterates=True), unrun(len)
    (None, None)
    """
    called = _called(f)
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        return "it is async, so a call only makes a coroutine, which nothing awaits: make it a plain function"
    if inspect.isgeneratorfunction(called) and not iterates:
        return "it has a yield, so a call only makes a generator, which nothing runs: return the result instead"
    # A decorated function is its decorator's: most pass a coroutine on, and one that runs it cannot be told from them.
    inner = _innermost(called)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        return (
            "it decorates an async function, whose coroutine nothing awaits: make it a plain function; if the "
            "decorator runs it to its end, call it in a plain function of your own"
        )
    return None


def check_ran(f: object, result: object) -> None:
    """Nothing, if the result of a call shows that it did its work; a TypeError if it is only the promise to.

    >>> check_ran(print, None)
    >>> check_ran(print, (n for n in ()))
    Traceback (most recent call last):
    TypeError: builtins.print: it returned a generator, which nothing runs: do the work before it returns
    """
    if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        what = "a generator, which nothing runs" if inspect.isgenerator(result) else "a coroutine, which nothing awaits"
        if not inspect.isasyncgen(result):
            result.close()
        raise TypeError(f"{place(f)}: it returned {what}: do the work before it returns")


def condition(predicate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """A predicate whose answer is True or False; a coroutine or generator, which would always hold, is a TypeError.

    >>> condition(lambda key, value: value)("k", [7])
    True
    """

    def holds(key: Any, value: Any) -> bool:
        answer = predicate(key, value)
        if answer is True or answer is False:
            return answer
        check_ran(predicate, answer)
        return bool(answer)

    return holds


def supplier_faults(supplier: Any) -> list[str]:
    """What is wrong with a supplier of processors: a class, or a callable that makes a new one at every call."""
    try:
        check(supplier, 0)
    except ValueError as error:
        return [str(error)]
    if isinstance(supplier, type):
        return processor_faults(supplier)
    try:
        processor, other = supplier(), supplier()
    except Exception as error:
        return [f"{place(supplier)}: the supplier raised {type(error).__name__}: {error}"]
    if processor is other:
        return [
            f"{place(supplier)}: the supplier gives the same processor each time, tasks would share it: "
            "make a new one in it, or give the class itself"
        ]
    return processor_faults(processor)


def processor_faults(processor: Any) -> list[str]:
    """What is wrong with the methods of a processor, or of its class."""
    kind = processor if isinstance(processor, type) else type(processor)
    methods = ((name, getattr(processor, name, None)) for name in ("init", "process", "close"))
    return [
        f"{place(method)}: {kind.__qualname__}.{name}() never runs: {reason}"
        + (", and forward() what it yields" if name == "process" and "yield" in reason else "")
        for name, method in methods
        if method is not None and (reason := unrun(method)) is not None
    ]


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


def _called(f: Any) -> Any:
    """The function that runs first when a callable is called."""
    while True:
        if isinstance(f, functools.partial):
            f = f.func
        elif isinstance(f, functools._lru_cache_wrapper):
            f = f.__wrapped__
        elif isinstance(f, types.MethodType):
            f = f.__func__
        elif isinstance(f, _READABLE) or inspect.iscoroutinefunction(f) or not callable(f):
            return f
        else:
            call = inspect.getattr_static(type(f), "__call__", None)
            call = call.__func__ if isinstance(call, staticmethod | classmethod) else call
            if not isinstance(call, types.FunctionType | functools.partial | types.MethodType):
                return f
            f = call


def _innermost(f: Any) -> Any:
    while isinstance(f, functools.partial):
        f = f.func
    return inspect.unwrap(f)


def _signature(f: object, iterates: bool) -> inspect.Signature | None:
    """The signature of a callable; None if it has no readable one."""
    if isinstance(f, Expression):
        raise ValueError(
            f"a function is needed here, but this is the expression {f!r}: write a lambda (expressions are for filter, "
            "map_values, select, select_key, group_by, branch and the like)"
        )
    if not callable(f):
        raise ValueError(f"a callable is needed, but this is {type(f).__name__} {f!r:.80}")
    reason = unrun(f, iterates=iterates)
    if reason is not None:
        raise ValueError(f"{place(f)}: the callable never runs: {reason}")
    inner = _innermost(f)
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
