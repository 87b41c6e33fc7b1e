"""The order in which Java's collections list what is put into them: `describe()` and the order of cache flushes follow
its hash sets, the neighbours of a node in `describe()` its tree sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, as an unsigned 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(data), 2):
        value = (31 * value + (data[i] << 8 | data[i + 1])) & 0xFFFFFFFF
    return value


def hash_order(texts: Iterable[str]) -> list[str]:
    """The strings as a Java HashSet iterates over them: by bucket, then by insertion.

    >>> hash_order(["in1", "in2"])
    ['in2', 'in1']
    """
    unique = list(dict.fromkeys(texts))
    buckets = 16
    while len(unique) > buckets * 3 // 4:
        buckets *= 2

    def bucket(text: str) -> int:
        value = string_hash(text)
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(unique, key=bucket)


class _Node(Generic[T]):
    __slots__ = ("children", "item", "parent", "red")

    def __init__(self, item: T, parent: _Node[T] | None) -> None:
        self.item = item
        self.parent = parent
        self.red = True
        self.children: list[_Node[T] | None] = [None, None]


class TreeSet(Generic[T]):
    """Java's TreeSet of items that are all different: a red-black tree, sorted by ranks that may change meanwhile.

    An item's place is found by going down the tree and comparing with the ranks at that moment, and the tree is
    rebalanced as Java does: so the shape of the tree shows in the order as soon as ranks change.

    >>> ranks = {"a": 1, "b": 2, "c": 3}
    >>> items = TreeSet(ranks.__getitem__)
    >>> items.add("a")
    >>> items.add("b")
    >>> ranks["a"] = 9
    >>> items.add("c")
    >>> list(items)
    ['c', 'a', 'b']
    """

    def __init__(self, rank: Callable[[T], Any]) -> None:
        self._rank = rank
        self._root: _Node[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._from(self._root)

    def _from(self, node: _Node[T] | None) -> Iterator[T]:
        if node is not None:
            yield from self._from(node.children[0])
            yield node.item
            yield from self._from(node.children[1])

    def add(self, item: T) -> None:
        """Put the item in its place."""
        rank, parent, side, node = self._rank(item), None, 0, self._root
        while node is not None:
            parent, side = node, int(rank > self._rank(node.item))
            node = node.children[side]
        added = _Node(item, parent)
        if parent is None:
            self._root = added
        else:
            parent.children[side] = added
        self._balance(added)

    def _balance(self, node: _Node[T]) -> None:
        while (parent := node.parent) is not None and parent.red and (above := parent.parent) is not None:
            side = above.children.index(parent)
            uncle = above.children[1 - side]
            above.red = True
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                node = above
                continue
            if node is parent.children[1 - side]:
                self._rotate(parent, side)
                node, parent = parent, node
            parent.red = False
            self._rotate(above, 1 - side)
        if self._root is not None:
            self._root.red = False

    def _rotate(self, node: _Node[T], side: int) -> None:
        """Move the node down to this side; its other child takes its place."""
        up = node.children[1 - side]
        assert up is not None
        inner = up.children[side]
        node.children[1 - side] = inner
        if inner is not None:
            inner.parent = node
        up.parent = node.parent
        if node.parent is None:
            self._root = up
        else:
            node.parent.children[node.parent.children.index(node)] = up
        up.children[side] = node
        node.parent = up
