"""Table-table joins by primary key: each side's updates joined with the other side's current row, then brought
together. It owns what is emitted when a side is missing; how the other side is read is its view's.
"""

from typing import Any

from headwater.dsl import ops
from headwater.dsl.records import Headers
from headwater.streams.compile import Site, Step, rule

__all__: list[str] = []


@rule(ops.TableJoinSide)
def join_table_side(op: ops.TableJoinSide, site: Site) -> Step:
    """Emit each update joined with the other table's row, at the later one's timestamp.

    Without a row on the other side: inner and right are silent; left and outer join with None, and are silent only
    about a deletion of nothing. Null keys, and out-of-order updates of a versioned table, are dropped and counted.
    """
    joiner, keyed, reverse, send_old, versioned = op.joiner, op.keyed, op.reverse, op.send_old, op.versioned
    drop, fault, forward = site.drop, site.fault, site.forward
    get = site.view(op.other).get
    needs_other = op.kind in ("inner", "right")
    # Whether a missing value of this side is still joined when the other side has one.
    joins_missing = op.kind in ("right", "outer")

    def joined(key: Any, this: Any, other: Any) -> Any:
        if this is None and (other is None or not joins_missing):
            return None
        left, right = (other, this) if reverse else (this, other)
        return joiner(key, left, right) if keyed else joiner(left, right)

    def join(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        if key is None or (versioned and not latest):
            drop()
            return
        try:
            row = get(key)
            if row is None:
                if needs_other or (new is None and old is None):
                    return
                other = None
            else:
                other, other_time = row
                if other_time > timestamp:
                    timestamp = other_time
            new_value = joined(key, new, other)
            old_value = joined(key, old, other) if send_old else None
        except Exception as error:
            fault(error, key, new, timestamp, headers)
            return
        forward(key, new_value, old_value, latest, timestamp, headers)

    return join


@rule(ops.TableJoinMerge)
def merge_table_join(op: ops.TableJoinMerge, site: Site) -> Step:
    """Emit the updates of both sides, after keeping them in the store if there is one."""
    fault, late, forward, send_old = site.fault, site.late, site.forward, op.send_old
    if op.store is None:

        def merge_unkept(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
            forward(key, new, old if send_old else None, latest, timestamp, headers)

        return merge_unkept

    store = site.table_store(op.store)
    get, put = store.get, store.put
    emit, wants_old = site.emitter(op.store, send_old)
    # The sides know the old value only if somebody asked them to send it; the record cache needs the store's own.
    reads_old = emit is not forward

    def merge_kept(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        try:
            if reads_old:
                row = get(key)
                old = None if row is None else row[0]
            stored = put(key, new, timestamp)
        except Exception as error:
            fault(error, key, new, timestamp, headers)
            return
        if stored is None:
            late(key, new, timestamp, headers)
        else:
            emit(key, new, old if wants_old else None, stored, timestamp, headers)

    return merge_kept
