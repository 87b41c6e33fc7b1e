"""Splitting a stream into branches: the first predicate that holds decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.dsl import ops
from headwater.dsl.camel import CamelCase
from headwater.dsl.expression_steps import as_function
from headwater.dsl.expressions import Expression
from headwater.dsl.graph import LazyStep, StepNode
from headwater.dsl.ops import Function

if TYPE_CHECKING:
    from headwater.dsl.stream import KStream


class Branches(CamelCase):
    """A stream being split; `default()` or `no_default()` ends it and gives the branches by name."""

    def __init__(self, stream: KStream, name: str | None) -> None:
        self._stream = stream
        self._drawing = stream._drawing
        self._name = self._drawing.named(name, "KSTREAM-BRANCH-")
        self._predicates: list[Function] = []
        self._children: list[str] = []
        self._streams: dict[str, KStream] = {}
        self._node = LazyStep(self._name, lambda _: ops.Branch(tuple(self._predicates), tuple(self._children)))
        self._drawing.add(stream._node, self._node)

    def branch(
        self,
        predicate: Function | Expression,
        *,
        name: str | None = None,
        to: Callable[[KStream], KStream | None] | None = None,
    ) -> Branches:
        """Send the records for which `predicate(key, value)` holds, and no earlier one did, to a branch.

        `to` is called with the branch at once; the stream it returns stands in the result, None leaves it out.

        >>> from headwater import StreamsBuilder, TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").split().branch(lambda k, v: v > 5, to=lambda s: s.to("high")).no_default()
        {}
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").send("k", 7, at=0)
        ...     len(driver.output("high").read_all())
        1
        """
        condition = as_function(predicate, predicate=True)
        self._predicates.append(condition)
        self._drawing.check(self._name, condition, 2)
        self._add(str(len(self._predicates)) if name is None else name, to)
        return self

    def default(
        self, *, name: str | None = None, to: Callable[[KStream], KStream | None] | None = None
    ) -> dict[str, KStream]:
        """Send all other records to one last branch; gives the branches by name.

        >>> from headwater import StreamsBuilder
        >>> stream = StreamsBuilder().stream("in")
        >>> sorted(stream.split(name="is-").branch(lambda k, v: v, name="true").default(name="false"))
        ['is-false', 'is-true']
        """
        self._add("0" if name is None else name, to)
        return self._streams

    def no_default(self) -> dict[str, KStream]:
        """Drop all other records, uncounted; gives the branches by name.

        >>> from headwater import StreamsBuilder
        >>> list(StreamsBuilder().stream("in").split(name="is-").branch(lambda k, v: v, name="true").no_default())
        ['is-true']
        """
        return self._streams

    def _add(self, suffix: str, to: Callable[[KStream], KStream | None] | None) -> None:
        from headwater.dsl.stream import KStream

        self._drawing.text("name=", suffix)
        name = self._name + suffix
        self._children.append(name)
        self._drawing.new_name(name)
        node = StepNode(name, ops.PassThrough())
        self._drawing.add(self._node, node)
        source = self._stream
        branch = KStream(
            self._drawing, node, name, source._key, source._value, source._sources, source._repartition
        )
        if to is None:
            self._streams[name] = branch
            return
        given: object = to
        if not callable(given):
            self._drawing.fault(name, f"to= takes a function of the branch, not {given!r}")
            return
        if not self._drawing.check(name, to, 1):
            return
        if (transformed := to(branch)) is not None:
            self._streams[name] = transformed
