"""Aggregates without windows: of a stream (KStreamAggregate, KStreamReduce) and of a grouped table (KTableAggregate,
KTableReduce). It owns which records count, what is stored and what is sent on; the record cache is `site.emitter`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.dsl import ops
from headwater.dsl.counts import plus_one, zero
from headwater.dsl.records import Headers
from headwater.dsl.serde import Int64
from headwater.state.codec import direct_encoder
from headwater.streams.compile import Site, Step, rule

__all__ = ["aggregator", "initial_again", "initializer"]


def initializer(init: ops.Function | None) -> Callable[[], Any]:
    """What a missing aggregate starts from: the user's initializer, or None for a reduce."""
    return _nothing if init is None else init


def _nothing() -> None:
    return None


def aggregator(init: ops.Function | None, f: ops.Function) -> Callable[[Any, Any, Any], Any]:
    """An aggregator `(key, value, aggregate)`; a reducer's takes the first value as it is."""
    if init is not None:
        return f

    def reduced(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else f(aggregate, value)

    return reduced


def initial_again(store: str, init: ops.Function | None, site: Site) -> Callable[[Any], Any]:
    """For a first aggregate the same once more, to be sent on as the old value whatever becomes of the first."""
    start = initializer(init)
    stable = site.spec(store).value.stable
    if site.config.compat is not None:
        return lambda aggregate: aggregate

    def again(aggregate: Any) -> Any:
        # A second one, not a copy: an initial value need not be one the store's serde could write.
        return aggregate if aggregate is None or stable(aggregate) else start()

    return again


@rule(ops.Aggregate)
def aggregate_records(op: ops.Aggregate, site: Site) -> Step:
    """Emit the key's new aggregate for each record; those without a key or a value are dropped and counted.

    Its timestamp is the latest of all records in the aggregate. A None aggregate deletes the row and is emitted too.
    """
    emit, wants_old = site.emitter(op.store, op.send_old)
    if wants_old or site.spec(op.store).kind != "timestamped":
        return _tracked(op, site, emit, wants_old)
    store = site.store(op.store)
    row_key_of, read, write = store.row_key, store.read, store.write
    f, drop, fault = op.f, site.drop, site.fault

    if op.init is None:

        def reduce(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop()
                return
            newest = timestamp
            try:
                row_key = row_key_of(key)
                row = read(row_key)
                if row is None:
                    new = value
                else:
                    aggregate, stored = row
                    new = f(aggregate, value)
                    if stored > newest:
                        newest = stored
                write(row_key, None if new is None else (new, newest))
            except Exception as error:
                fault(error, key, value, timestamp, headers)
                return
            emit(key, new, None, True, newest, headers)

        return reduce

    if op.f is plus_one and op.init is zero and site.spec(op.store).value == Int64():
        write_stable, quick_key = store.write_stable, direct_encoder(site.spec(op.store).key)

        def count(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop()
                return
            total = 1
            try:
                try:
                    row_key = quick_key(key)
                except Exception:
                    # What the direct encoder cannot do, the serde may yet, or it says why not.
                    row_key = row_key_of(key)
                row = read(row_key)
                if row is not None:
                    total = row[0] + 1
                    if row[1] > timestamp:
                        timestamp = row[1]
                write_stable(row_key, (total, timestamp))
            except Exception as error:
                fault(error, key, value, timestamp, headers)
                return
            emit(key, total, None, True, timestamp, headers)

        return count

    init = op.init

    def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            drop()
            return
        newest = timestamp
        try:
            row_key = row_key_of(key)
            row = read(row_key)
            if row is None:
                new = f(key, value, init())
            else:
                aggregate, stored = row
                new = f(key, value, aggregate)
                if stored > newest:
                    newest = stored
            write(row_key, None if new is None else (new, newest))
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        emit(key, new, None, True, newest, headers)

    return aggregate


def _tracked(op: ops.Aggregate, site: Site, emit: Step, wants_old: bool) -> Step:
    """The same where the store is versioned or somebody wants the old aggregate."""
    store = site.table_store(op.store)
    get, put = store.get, store.put
    init, f, again = initializer(op.init), aggregator(op.init, op.f), initial_again(op.store, op.init, site)
    name, copy, drop, late, fault = op.store, site.copy, site.drop, site.late, site.fault
    cached = emit is not site.forward
    # Sent on at once, the old value of a new key is the initial one; the cache compares with the store.
    sends_initial = wants_old and not cached

    def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            drop()
            return
        newest = timestamp
        try:
            row = get(key)
            if row is None:
                aggregate = init()
                old = again(aggregate) if sends_initial else None
            else:
                aggregate, stored = row
                old = copy(name, aggregate) if wants_old else None
                newest = max(timestamp, stored)
            new = f(key, value, aggregate)
            latest = put(key, new, newest)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        if latest is None:
            late(key, value, timestamp, headers)
        else:
            # The row takes its timestamp with it, so a deletion out of the cache has only the record's.
            emit(key, new, old, latest, timestamp if cached and new is None else newest, headers)

    return aggregate


@rule(ops.TableAggregate)
def aggregate_table(op: ops.TableAggregate, site: Site) -> Step:
    """Emit a group's new aggregate for each (new, old) pair: what is left without the old value, and with the new one.

    The old value is subtracted only from an aggregate that exists; a None aggregate deletes the row, and the next
    value starts a new one.
    """
    store = site.table_store(op.store)
    get, put = store.get, store.put
    emit, wants_old = site.emitter(op.store, op.send_old)
    cached = emit is not site.forward
    init, add = initializer(op.init), aggregator(op.init, op.add)
    name, copy, late, fault = op.store, site.copy, site.late, site.fault
    if op.init is None:
        subtract_reduced = op.subtract

        def subtract(key: Any, value: Any, aggregate: Any) -> Any:
            return subtract_reduced(aggregate, value)

    else:
        subtract = op.subtract

    def aggregate(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        newest = timestamp
        old = None
        try:
            if key is None:
                raise ValueError(f"a table's aggregate in the store {name!r} got an update without a key")
            added, removed = value
            row = get(key)
            new = None
            if row is not None:
                new, stored = row
                if wants_old:
                    old = copy(name, new)
                if removed is not None:
                    new = subtract(key, removed, new)
                if removed is not None or added is not None:
                    newest = max(timestamp, stored)
            if added is not None:
                new = add(key, added, init() if new is None else new)
            latest = put(key, new, newest)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        if latest is None:
            late(key, value, timestamp, headers)
        else:
            emit(key, new, old, latest, timestamp if cached and new is None else newest, headers)

    return aggregate
