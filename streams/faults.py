"""What becomes of a record that cannot be read, processed or written: the application's handlers are asked, and it
fails, is skipped or becomes a dead letter. It owns the text of the error and the shape of the dead letter; counting is
the node's.

A dead letter is the source record as it was read, under Kafka Streams' own headers and one more for the step:

| header | content |
|---|---|
| `__streams.errors.exception` | the error's class |
| `__streams.errors.message` | its text |
| `__streams.errors.topic`, `.partition`, `.offset` | where the source record came from |
| `__streams.errors.step` | the step that failed |
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from headwater.dsl.callables import place
from headwater.dsl.config import Config, ErrorContext, ErrorHandler
from headwater.dsl.records import Headers
from headwater.errors import StateError, StreamsError
from headwater.streams.context import TaskContext

__all__ = ["Faults", "RecordFailed", "function_of", "running", "text_of"]

Kind = Literal["deserialization", "processing", "production", "future"]

_VERBS: dict[Kind, str] = {
    "deserialization": "could not read",
    "processing": "failed on",
    "production": "could not write a result of",
    "future": "does not take",
}


class RecordFailed(StreamsError):
    """A record failed and its handler said so: processing stops here, and no step further up may handle it again."""


class Faults:
    """The error handlers of an application, for one task; `quiet` ones send nothing anywhere."""

    def __init__(self, config: Config, context: TaskContext, *, quiet: bool = False) -> None:
        self._handlers: dict[Kind, ErrorHandler] = {
            "deserialization": config.on_deserialization_error,
            "processing": config.on_processing_error,
            "production": config.on_production_error,
            "future": config.on_future or config.on_deserialization_error,
        }
        self._dead_letters = config.dead_letters
        self._context = context
        self._quiet = quiet

    def handle(
        self,
        kind: Kind,
        step: str,
        error: BaseException,
        key: Any,
        value: Any,
        timestamp: int | None,
        headers: Headers,
        function: str | None = None,
    ) -> None:
        """Raise the record's failure, or return when it is to be passed over (as a dead letter, if asked for)."""
        if isinstance(error, StateError):
            # Damage is no fault of the record: passed over, every later one would be too.
            raise error
        context = self._context
        told = ErrorContext(
            kind, step, error, key, value, timestamp, headers, context.topic, context.partition, context.offset,
            function, context.task_id,
        )  # fmt: skip
        handler = self._handlers[kind]
        setting = "on_future" if kind == "future" else f"on_{kind}_error"
        response: object = handler
        if callable(handler):
            try:
                response = handler(told)
            except Exception as raised:
                raise RecordFailed(
                    f"the handler {setting} ({place(handler)}) raised {text_of(raised)} when it was asked about "
                    f"{text_of(error)} in {_where(told)}"
                ) from raised
        if response == "skip":
            return
        if response == "dead-letter" and self._dead_letters is not None:
            self.send(self._dead_letters, _headers(told))
            return
        if response == "fail":
            remedy = f'correct the input or the function, or set {setting} to "skip" or "dead-letter"'
        elif response == "dead-letter":
            remedy = 'the handler answered "dead-letter": give Config a topic, dead_letters="…"'
        else:
            remedy = f'the handler answered {response!r} instead of "fail", "skip" or "dead-letter"'
        raise RecordFailed(f"{_where(told)} {_VERBS[kind]} {_record(told)}: {text_of(error)}; {remedy}") from error

    def send(self, topic: str, headers: Headers) -> None:
        """Send the source record as it was read to a topic, with these headers after its own."""
        if self._quiet:
            return
        context = self._context
        key, value, timestamp, own, _ = context.record or (None, None, context.timestamp, (), -1)
        context.outputs.append((topic, None, key, value, max(timestamp, 0), (*own, *headers)))


def _headers(told: ErrorContext) -> Headers:
    return tuple(
        (f"__streams.errors.{name}", str(content).encode("utf-8", "replace"))
        for name, content in (
            ("exception", f"{type(told.error).__module__}.{type(told.error).__qualname__}"),
            ("message", _message(told.error)),
            ("topic", told.topic),
            ("partition", told.partition),
            ("offset", told.offset),
            ("step", told.step),
        )
    )


def text_of(error: BaseException) -> str:
    """An error's class and text; of one that has none to give, as much as there is.

    >>> text_of(ValueError("too small")), text_of(KeyError())
    ('ValueError: too small', 'KeyError')
    """
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:
        return f"(its text cannot be had: __str__ raised {type(raised).__name__})"


def _where(told: ErrorContext) -> str:
    return f"step {told.step!r}" + (f" ({told.function})" if told.function else "")


def _record(told: ErrorContext) -> str:
    if told.topic is None:
        return f"its punctuator at {told.timestamp}"
    return f"{told.topic}-{told.partition}@{told.offset}"


def function_of(op: object, error: BaseException) -> str | None:
    """The user's function in an operator that an error came from, as module:line; the only one if none was running."""
    functions = list(_functions(op))
    running = set()
    traceback = error.__traceback__
    while traceback is not None:
        running.add(traceback.tb_frame.f_code)
        traceback = traceback.tb_next
    for function in functions:
        if _code(function) in running:
            return place(function)
    return place(functions[0]) if len(functions) == 1 else None


def running(
    ops: Mapping[str, object], processors: Mapping[str, object], codes: Sequence[types.CodeType]
) -> tuple[str, str] | None:
    """The step whose function is at work, and that function as module:line; `codes` is a stack, the innermost first."""
    owners: dict[types.CodeType, tuple[str, Any]] = {}
    for step, op in ops.items():
        for function in _functions(op):
            code = _code(function)
            if code is not None:
                owners.setdefault(code, (step, function))
    for step, processor in processors.items():
        for base in type(processor).__mro__[:-1]:
            for function in vars(base).values():
                if isinstance(function, types.FunctionType):
                    owners.setdefault(function.__code__, (step, function))
    found = next((owners[code] for code in codes if code in owners), None)
    return None if found is None else (found[0], place(found[1]))


def _functions(op: object) -> Iterator[Any]:
    if not dataclasses.is_dataclass(op):
        return
    for field in dataclasses.fields(op):
        content = getattr(op, field.name)
        for candidate in content if isinstance(content, tuple) else (content,):
            if callable(candidate):
                yield candidate


def _code(function: Any) -> types.CodeType | None:
    function = inspect.unwrap(getattr(function, "func", function))
    method = function if hasattr(function, "__code__") else getattr(function, "__call__", None)  # noqa: B004
    return getattr(getattr(method, "__func__", method), "__code__", None)
