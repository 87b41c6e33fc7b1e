"""Looking up a table by key from another operator: a view becomes a Reader over the stores it hangs on. It owns what an
unmaterialized table computes on the fly; what the stores keep, and for how long, is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from headwater.dsl import ops
from headwater.dsl.callables import condition
from headwater.errors import StreamsError

if TYPE_CHECKING:
    from headwater.streams.compile import Site

__all__ = ["Reader", "compile_view"]

Row = tuple[Any, int]
Get = Callable[[Any], Row | None]
AsOf = Callable[[Any, int], Row | None]


def _no_history(key: Any, timestamp: int) -> NoReturn:
    raise StreamsError("this table keeps no versions: ask for its current value, or give it a Versioned store")


@dataclass(frozen=True, slots=True)
class Reader:
    """A table's rows by key: `get(key)` is the current (value, timestamp) or None, `as_of` the one valid at a time.

    The value of a row is never None. Only a versioned reader knows the past.
    """

    get: Get
    as_of: AsOf = _no_history
    versioned: bool = False


def compile_view(view: ops.View, site: Site) -> Reader:
    """The reader of a view, for one node of one task."""
    match view:
        case ops.StoreView():
            return _store_reader(view, site)
        case ops.FilterView():
            return _filter_reader(view, compile_view(view.parent, site))
        case ops.MapView():
            return _map_reader(view, compile_view(view.parent, site))
        case ops.JoinView():
            return Reader(_joined(view, compile_view(view.left, site).get, compile_view(view.right, site).get))
        case ops.SuppressView():
            return Reader(_suppressed(view, compile_view(view.parent, site).get, site))
    raise StreamsError(f"step {site.node!r} reads a table through {view!r}, which has no reader")


def _store_reader(view: ops.StoreView, site: Site) -> Reader:
    kind = site.spec(view.store).kind
    if kind == "window":
        window = site.store(view.store)
        return Reader(lambda key: window.get(key.key, key.start))
    if kind == "session":
        return Reader(_session_get(site.store(view.store)))
    table = site.table_store(view.store)
    if table.versioned:
        return Reader(table.get, table.as_of, True)
    return Reader(table.get)


def _session_get(store: Any) -> Get:
    def get(key: Any) -> Row | None:
        value = store.get(key.key, key.start, key.end)
        return None if value is None else (value, key.end)

    return get


def _filter_reader(view: ops.FilterView, parent: Reader) -> Reader:
    holds, negate = condition(view.predicate), view.negate

    def shown(key: Any, row: Row | None) -> Row | None:
        return row if row is not None and holds(key, row[0]) is not negate else None

    return _derived(shown, parent)


def _map_reader(view: ops.MapView, parent: Reader) -> Reader:
    f, keyed = view.f, view.keyed

    def mapped(key: Any, row: Row | None) -> Row | None:
        if row is None:
            return None
        value = f(key, row[0]) if keyed else f(row[0])
        return None if value is None else (value, row[1])

    return _derived(mapped, parent)


def _derived(change: Callable[[Any, Row | None], Row | None], parent: Reader) -> Reader:
    current = parent.get

    def get(key: Any) -> Row | None:
        return change(key, current(key))

    if not parent.versioned:
        return Reader(get)
    past = parent.as_of
    return Reader(get, lambda key, timestamp: change(key, past(key, timestamp)), True)


def _joined(view: ops.JoinView, left_get: Get, right_get: Get) -> Get:
    # Joined versioned tables are not versioned (KIP-914).
    joiner, keyed, kind = view.joiner, view.keyed, view.kind
    needs_left, needs_right = kind != "outer", kind == "inner"

    def get(key: Any) -> Row | None:
        left = left_get(key)
        if left is None and needs_left:
            return None
        right = right_get(key)
        if right is None and (needs_right or left is None):
            return None
        left_value, left_time = left or (None, -1)
        right_value, right_time = right or (None, -1)
        value = joiner(key, left_value, right_value) if keyed else joiner(left_value, right_value)
        return None if value is None else (value, max(left_time, right_time))

    return get


def _suppressed(view: ops.SuppressView, parent_get: Get, site: Site) -> Get:
    buffer, spec = site.store(view.buffer), site.spec(view.buffer)
    encode_key, decode = spec.key.encode, spec.value.decode

    def get(key: Any) -> Row | None:
        change = buffer.get(encode_key(key))
        if change is None:
            return parent_get(key)
        # Nobody knows the timestamp of the value before the buffered one; Kafka Streams says -1.
        return None if change.prior is None else (decode(change.prior), -1)

    return get
