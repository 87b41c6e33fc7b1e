"""How a table comes about: its operator, its store and how others may read it, as far as is known before the build.

Suppliers are mutable until then, because a later call may need more of a table than the one that made it: a child that
wants old values, a join that reads it. `enable_old` and `view` are those requests, with Kafka Streams' own rules for
what they force to be materialized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from headwater.dsl import ops
from headwater.dsl.ops import Function, Op, StoreView, View
from headwater.dsl.suppress import Suppress

if TYPE_CHECKING:
    from headwater.dsl.topology import StoreSpec


class Parent(Protocol):
    """What a supplier asks of the table it was made from."""

    def enable_old(self, force: bool) -> bool:
        """Send old values along; False when that would need materializing and is not forced."""
        ...

    def view(self) -> View:
        """How to read the table."""
        ...


class TableSupplier:
    """A table in the making."""

    def __init__(self, spec: StoreSpec | None) -> None:
        self.spec = spec
        self.send_old = False
        self.versioned = False

    @property
    def store(self) -> str | None:
        """The name of its store, if it is materialized."""
        return self.spec.name if self.spec else None

    def specs(self) -> tuple[StoreSpec, ...]:
        """The stores to add for it."""
        return (self.spec,) if self.spec else ()

    def op(self) -> Op:
        """Its operator, as things stand now."""
        raise NotImplementedError(type(self))

    def view(self) -> View:
        """How others read it."""
        assert self.spec is not None
        return StoreView(self.spec.name)

    def enable_old(self, force: bool) -> bool:
        """Send old values from now on, if that needs no store or one may be forced."""
        self.send_old = True
        return True


class SourceTable(TableSupplier):
    """A table kept from a stream; it has a store only if it was named or someone needs one."""

    def __init__(self, spec: StoreSpec, materialized: bool) -> None:
        super().__init__(spec)
        self.materialized = materialized

    def specs(self) -> tuple[StoreSpec, ...]:
        return super().specs() if self.materialized else ()

    def op(self) -> Op:
        return ops.TableSource(self.store if self.materialized else None, self.send_old)

    def view(self) -> View:
        self.materialized = True
        return super().view()

    def enable_old(self, force: bool) -> bool:
        if not force and not self.materialized:
            return False
        self.materialized = self.send_old = True
        return True


class AggregateTable(TableSupplier):
    """The result of an aggregation: always materialized."""

    def __init__(self, spec: StoreSpec, make: Callable[[str, bool], Op]) -> None:
        super().__init__(spec)
        self._make = make

    def op(self) -> Op:
        assert self.spec is not None
        return self._make(self.spec.name, self.send_old)


class CogroupedTable(TableSupplier):
    """Where the aggregates of cogrouped streams meet; they share one store."""

    def __init__(self, parents: list[AggregateTable]) -> None:
        super().__init__(None)
        self._parents = parents

    def op(self) -> Op:
        return ops.TablePassThrough()

    def view(self) -> View:
        return self._parents[0].view()

    def enable_old(self, force: bool) -> bool:
        for parent in self._parents:
            parent.enable_old(force)
        return True


class FilterTable(TableSupplier):
    """A table without the rows a predicate rejects."""

    def __init__(self, parent: Parent, predicate: Function, negate: bool, spec: StoreSpec | None) -> None:
        super().__init__(spec)
        self._parent, self._predicate, self._negate = parent, predicate, negate
        # Old values spare the tombstones of rows that never passed; ask for them where they cost no extra store.
        self.send_old = parent.enable_old(False)

    def op(self) -> Op:
        return ops.TableFilter(self._predicate, self._negate, self.store, self.send_old, self.versioned)

    def view(self) -> View:
        return super().view() if self.spec else ops.FilterView(self._parent.view(), self._predicate, self._negate)

    def enable_old(self, force: bool) -> bool:
        if self.spec or self._parent.enable_old(force):
            self.send_old = True
        return self.send_old


class MappedTable(TableSupplier):
    """A table with its values mapped."""

    def __init__(self, parent: Parent, f: Function, keyed: bool, spec: StoreSpec | None) -> None:
        super().__init__(spec)
        self._parent, self._f, self._keyed = parent, f, keyed

    def op(self) -> Op:
        return ops.TableMapValues(self._f, self._keyed, self.store, self.send_old)

    def view(self) -> View:
        return super().view() if self.spec else ops.MapView(self._parent.view(), self._f, self._keyed)

    def enable_old(self, force: bool) -> bool:
        if self.spec or self._parent.enable_old(force):
            self.send_old = True
        return self.send_old


class SuppressedTable(TableSupplier):
    """A table whose updates wait in a buffer; its `spec` is the buffer."""

    def __init__(self, parent: Parent, suppress: Suppress, grace_ms: int, buffer: StoreSpec) -> None:
        super().__init__(buffer)
        self._parent, self._suppress, self._grace_ms, self._buffer = parent, suppress, grace_ms, buffer
        # The buffer answers readers with the value before the update it holds.
        parent.enable_old(True)

    def op(self) -> Op:
        return ops.TableSuppress(self._buffer.name, self._suppress, self._grace_ms)

    def view(self) -> View:
        return ops.SuppressView(self._buffer.name, self._parent.view())

    def enable_old(self, force: bool) -> bool:
        return self._parent.enable_old(force)


class JoinedTable(TableSupplier):
    """The result of a table-table join."""

    def __init__(
        self,
        left: Parent,
        right: Parent,
        joiner: Function,
        keyed: bool,
        kind: Literal["inner", "left", "outer"],
        spec: StoreSpec | None,
    ) -> None:
        super().__init__(spec)
        self._left, self._right = left, right
        self._joiner, self._keyed, self._kind = joiner, keyed, kind
        self._views = (left.view(), right.view())

    def op(self) -> Op:
        return ops.TableJoinMerge(self.store, self.send_old)

    def side(self, side: int, versioned: bool) -> Op:
        """The operator of the left (0) or right (1) side."""
        kind: Literal["inner", "left", "right", "outer"] = self._kind
        if kind == "left" and side == 1:
            kind = "right"
        return ops.TableJoinSide(
            self._views[1 - side], self._joiner, self._keyed, kind, bool(side), self.send_old, versioned
        )

    def view(self) -> View:
        return super().view() if self.spec else ops.JoinView(*self._views, self._joiner, self._keyed, self._kind)

    def enable_old(self, force: bool) -> bool:
        self._left.enable_old(True)
        self._right.enable_old(True)
        self.send_old = True
        return True


def stores_of(view: View) -> tuple[str, ...]:
    """The stores a view reads."""
    match view:
        case StoreView():
            return (view.store,)
        case ops.FilterView() | ops.MapView():
            return stores_of(view.parent)
        case ops.SuppressView():
            return (view.buffer, *stores_of(view.parent))
        case ops.JoinView():
            return tuple(dict.fromkeys(stores_of(view.left) + stores_of(view.right)))
    raise TypeError(f"not a view: {view!r}")
