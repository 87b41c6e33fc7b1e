"""Tables that follow one stream or one other table: sources, filters, mapped values, and the way to a group. It owns
what they store and emit; joins and suppression of tables are elsewhere.
"""

from typing import Any

from headwater.dsl import ops
from headwater.dsl.callables import condition
from headwater.dsl.records import Headers
from headwater.errors import StreamsError
from headwater.streams.compile import Site, Step, rule

__all__: list[str] = []


@rule(ops.TableSource)
def table_source(op: ops.TableSource, site: Site) -> Step:
    """Emit each record as an update of its key's row; a null key is dropped, a null value deletes.

    Updates apply in the order of arrival: an older one overwrites. A versioned store files it in the history instead,
    and refuses one older than its retention, which then is not emitted.
    """
    drop, fault, late, forward = site.drop, site.fault, site.late, site.forward
    if op.store is None:

        def update_unkept(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop()
            else:
                forward(key, value, None, True, timestamp, headers)

        return update_unkept

    store = site.table_store(op.store)
    get, put = store.get, store.put
    emit, wants_old = site.emitter(op.store, op.send_old)

    def update(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            drop()
            return
        try:
            row = get(key) if wants_old else None
            latest = put(key, value, timestamp)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        if latest is None:
            late(key, value, timestamp, headers)
        else:
            emit(key, value, None if row is None else row[0], latest, timestamp, headers)

    return update


@rule(ops.TableFilter)
def filter_table(op: ops.TableFilter, site: Site) -> Step:
    """Emit each update with the values that the predicate rejects turned into deletions.

    Where old values are known, an update that was and remains hidden is not emitted (but over a versioned table it is:
    there an older value can come to light later).
    """
    holds, negate = condition(op.predicate), op.negate
    fault, late = site.fault, site.late
    skips_hidden = op.send_old and not op.versioned
    if op.store is None:
        forward, send_old = site.forward, op.send_old

        def filter_unkept(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
            try:
                shown = new if new is not None and holds(key, new) is not negate else None
                if not send_old or old is None or holds(key, old) is negate:
                    old = None
            except Exception as error:
                fault(error, key, new, timestamp, headers)
                return
            if skips_hidden and shown is None and old is None:
                return
            forward(key, shown, old, latest, timestamp, headers)

        return filter_unkept

    store = site.table_store(op.store)
    get, put = store.get, store.put
    emit, wants_old = site.emitter(op.store, op.send_old)

    def filter_kept(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        try:
            shown = new if new is not None and holds(key, new) is not negate else None
            row = get(key) if wants_old else None
            if skips_hidden and shown is None and row is None:
                return
            stored = put(key, shown, timestamp)
        except Exception as error:
            fault(error, key, new, timestamp, headers)
            return
        if stored is None:
            late(key, new, timestamp, headers)
        else:
            emit(key, shown, None if row is None else row[0], stored, timestamp, headers)

    return filter_kept


@rule(ops.TableMapValues)
def map_table_values(op: ops.TableMapValues, site: Site) -> Step:
    """Emit each update with its values mapped; deletions stay deletions, and the function never sees None."""
    f, keyed = op.f, op.keyed
    fault, late = site.fault, site.late
    if op.store is None:
        forward, send_old = site.forward, op.send_old

        def map_unkept(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
            try:
                mapped = None if new is None else f(key, new) if keyed else f(new)
                if not send_old:
                    old = None
                elif old is not None:
                    old = f(key, old) if keyed else f(old)
            except Exception as error:
                fault(error, key, new, timestamp, headers)
                return
            forward(key, mapped, old, latest, timestamp, headers)

        return map_unkept

    store = site.table_store(op.store)
    get, put = store.get, store.put
    emit, wants_old = site.emitter(op.store, op.send_old)

    def map_kept(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        try:
            mapped = None if new is None else f(key, new) if keyed else f(new)
            row = get(key) if wants_old else None
            stored = put(key, mapped, timestamp)
        except Exception as error:
            fault(error, key, new, timestamp, headers)
            return
        if stored is None:
            late(key, new, timestamp, headers)
        else:
            emit(key, mapped, None if row is None else row[0], stored, timestamp, headers)

    return map_kept


@rule(ops.TableGroupBy)
def group_table(op: ops.TableGroupBy, site: Site) -> Step:
    """Emit an update as (new, old) under its group's key; between two groups, (None, old) to the old group first.

    A half whose group key or value is None is left out, uncounted. Out-of-order updates of a versioned table end here.
    """
    f, versioned = op.f, op.versioned
    fault, forward, node = site.fault, site.forward, site.node
    as_arrays = site.config.compat is not None  # which Java compares by identity

    def regroup(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        try:
            if key is None:
                raise StreamsError(
                    f"step {node!r} got an update without a key: a table's rows have keys; drop such records before"
                )
            if versioned and not latest:
                return
            new_key, new_value = (None if new is None else f(key, new)) or (None, None)
            old_key, old_value = (None if old is None else f(key, old)) or (None, None)
            adds = new_key is not None and new_value is not None
            removes = old_key is not None and old_value is not None
            # 1 == True == 1.0 in Python, yet each is a group of its own.
            same_group = adds and removes and type(old_key) is type(new_key) and old_key == new_key
            if as_arrays and type(old_key) is bytes:
                same_group = False
        except Exception as error:
            fault(error, key, new, timestamp, headers)
            return
        if same_group:
            forward(old_key, (new_value, old_value), timestamp, headers)
            return
        if removes:
            forward(old_key, (None, old_value), timestamp, headers)
        if adds:
            forward(new_key, (new_value, None), timestamp, headers)

    return regroup
