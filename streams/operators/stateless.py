"""Operators that keep nothing: a record comes in, and the next step gets it changed, several times or not at all. It
owns the order of what one record becomes; headers and timestamps pass unchanged.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from headwater.dsl import ops
from headwater.dsl.callables import check_ran
from headwater.dsl.expression_code import ExpressionFunction
from headwater.dsl.expression_values import kind_of
from headwater.dsl.records import Headers
from headwater.errors import StreamsError
from headwater.streams.compile import Site, Step, rule

__all__: list[str] = []


def _function(f: ops.Function) -> ops.Function:
    """What to call for a callable or an expression: for the latter its generated function, without a call between."""
    return f.function if isinstance(f, ExpressionFunction) else f


def _timed(step: Step, *functions: ops.Function) -> Step:
    """The step, telling expressions that read it the record's timestamp."""
    clocks = [f.clock for f in functions if isinstance(f, ExpressionFunction) and f.reads_timestamp]
    if not clocks:
        return step

    def at(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for clock in clocks:
            clock[0] = timestamp
        step(key, value, timestamp, headers)

    return at


@rule(ops.Filter)
def filter_records(op: ops.Filter, site: Site) -> Step:
    """Emit each record for which the predicate holds (negated: does not hold)."""
    predicate, fault, forward = _function(op.predicate), site.fault, site.forward
    if op.negate:

        def keep_others(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                rejected = predicate(key, value)
                if rejected is not True and rejected:
                    check_ran(predicate, rejected)
            except Exception as error:
                fault(error, key, value, timestamp, headers)
                return
            if not rejected:
                forward(key, value, timestamp, headers)

        return _timed(keep_others, op.predicate)

    def keep(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            accepted = predicate(key, value)
            if accepted is not True and accepted:
                check_ran(predicate, accepted)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        if accepted:
            forward(key, value, timestamp, headers)

    return _timed(keep, op.predicate)


@rule(ops.Map)
def map_records(op: ops.Map, site: Site) -> Step:
    """Emit the pair that the function gives for each record."""
    f, fault, forward = op.f, site.fault, site.forward

    def map_record(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            new_key, new_value = f(key, value)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        forward(new_key, new_value, timestamp, headers)

    return map_record


@rule(ops.MapValues)
def map_values(op: ops.MapValues, site: Site) -> Step:
    """Emit each record with the value that the function gives for it."""
    f, fault, forward = _function(op.f), site.fault, site.forward
    if op.keyed:

        def map_keyed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new = f(key, value)
            except Exception as error:
                fault(error, key, value, timestamp, headers)
                return
            forward(key, new, timestamp, headers)

        return _timed(map_keyed, op.f)

    def map_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            new = f(value)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        forward(key, new, timestamp, headers)

    return map_value


@rule(ops.FlatMap)
def flat_map_records(op: ops.FlatMap, site: Site) -> Step:
    """Emit the pairs that the function gives for each record, in order."""
    f, fault, forward = op.f, site.fault, site.forward

    def flat_map(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            for new_key, new_value in f(key, value):
                forward(new_key, new_value, timestamp, headers)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return flat_map


@rule(ops.FlatMapValues)
def flat_map_values(op: ops.FlatMapValues, site: Site) -> Step:
    """Emit each record once per value that the function gives for it, in order."""
    f, keyed, fault, forward = op.f, op.keyed, site.fault, site.forward
    if isinstance(f, ExpressionFunction):
        f = _elements(f)

    def flat_map(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            for new in f(key, value) if keyed else f(value):
                forward(key, new, timestamp, headers)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return _timed(flat_map, op.f)


def _elements(expression: ExpressionFunction) -> ops.Function:
    """An expression's list; null is an empty one, and text is none although Python could iterate over it."""
    evaluate = expression.function

    def elements(key: Any, value: Any) -> list[Any] | tuple[Any, ...]:
        result = evaluate(key, value)
        if result is not None and not isinstance(result, list | tuple):
            raise TypeError(f"flat_map_values takes a list, not {kind_of(result)} {result!r:.60}")
        return result or ()

    return elements


@rule(ops.SelectKey)
def select_key(op: ops.SelectKey, site: Site) -> Step:
    """Emit each record under the key that the function gives for it."""
    f, fault, forward = _function(op.f), site.fault, site.forward

    def rekey(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            new_key = f(key, value)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        forward(new_key, value, timestamp, headers)

    return _timed(rekey, op.f)


@rule(ops.Peek)
def peek(op: ops.Peek, site: Site) -> Step:
    """Show each record to the function, then emit it."""
    f, fault, forward = op.f, site.fault, site.forward

    def look(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            result = f(key, value)
            if result is not None:
                check_ran(f, result)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        forward(key, value, timestamp, headers)

    return look


@rule(ops.Foreach)
def foreach(op: ops.Foreach, site: Site) -> Step:
    """Give each record to the function, and nothing to anyone else."""
    f, fault = op.f, site.fault

    def take(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            result = f(key, value)
            if result is not None:
                check_ran(f, result)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return take


@rule(ops.Print)
def print_records(op: ops.Print, site: Site) -> Step:
    """Write a line per record, to standard output or to the end of a file."""
    label, fault = op.label, site.fault
    file: io.TextIOBase | None = None
    if op.file is not None:
        # Appended to: a restarted task must not wipe out what it has written before.
        try:
            file = open(op.file, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the task
        except (OSError, TypeError) as error:
            raise StreamsError(f"step {site.node!r}: print() cannot write to file={op.file!r}: {error}") from error
        site.closes(file.close)

    def write(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            print(f"[{label}]: {key}, {value}", file=file or sys.stdout)
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return write


@rule(ops.Branch)
def branch(op: ops.Branch, site: Site) -> Step:
    """Emit each record to the child of the first predicate that holds, else to the default child, else to none."""
    fault = site.fault
    predicates = map(_function, op.predicates)
    pairs = [(predicate, site.children[child]) for predicate, child in zip(predicates, op.children, strict=False)]
    default = site.children[op.children[-1]] if len(op.children) > len(op.predicates) else None

    def choose(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            chosen = default
            for predicate, child in pairs:
                answer = predicate(key, value)
                if answer:
                    if answer is not True:
                        check_ran(predicate, answer)
                    chosen = child
                    break
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        if chosen is not None:
            chosen(key, value, timestamp, headers)

    return _timed(choose, *op.predicates)


@rule(ops.PassThrough)
def pass_through(op: ops.PassThrough, site: Site) -> Step:
    """Emit each record."""
    return site.forward


@rule(ops.RepartitionFilter)
def repartition_filter(op: ops.RepartitionFilter, site: Site) -> Step:
    """Emit each record; where keys are needed, those without one end here, and as in Kafka Streams are not counted."""
    forward = site.forward
    if not op.drop_null_keys:
        return forward

    def keep_keyed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is not None:
            forward(key, value, timestamp, headers)

    return keep_keyed


@rule(ops.ToStream)
def to_stream(op: ops.ToStream, site: Site) -> Step:
    """Emit each update's new value as a record."""
    forward = site.forward

    def unwrap(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        forward(key, new, timestamp, headers)

    return unwrap


@rule(ops.TablePassThrough)
def table_pass_through(op: ops.TablePassThrough, site: Site) -> Step:
    """Emit each update."""
    return site.forward
