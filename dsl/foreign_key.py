"""Foreign-key joins: a left table's rows subscribe to the foreign rows they name, and are answered.

Two internal topics carry it: subscriptions go to the foreign key's partition, responses back to the left row's. So the
tables need not be partitioned alike, and no task sees more than its own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.dsl import ops
from headwater.dsl.graph import LazyStep, SinkNode, SourceNode, StepNode, TableNode
from headwater.dsl.internal_serdes import Response, ResponseSerde, SubscriptionSerde
from headwater.dsl.ops import Function
from headwater.dsl.serde import Serde
from headwater.dsl.stores import StoreDescription
from headwater.dsl.suppliers import SourceTable, stores_of
from headwater.dsl.table import KTable
from headwater.dsl.topology import StoreSpec

Partitioner = Callable[..., int | None]

_REGISTRATION = "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-"
_RESPONSE = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-"
_RESOLVER = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
_STORE = "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-"
_OUTPUT = "KTABLE-FK-JOIN-OUTPUT-"


def join_foreign(
    left: KTable,
    right: KTable,
    joiner: Function,
    foreign_key: Function,
    is_left: bool,
    store: str | StoreDescription | None,
    value: Serde | None,
    name: str | None,
    partitioner: Partitioner | None,
    other_partitioner: Partitioner | None,
) -> KTable:
    """The left table's rows, each joined with the foreign row it names."""
    drawing = left._drawing
    right.enable_old(True)
    left.enable_old(True)
    primary = left._key or drawing.default_key
    foreign = right._key or drawing.default_key
    left_value = left._value or drawing.default_value
    right_value = right._value or drawing.default_value

    # ---- the left rows subscribe
    topic = drawing.suffixed(name, "-subscription-registration", _REGISTRATION) + "-topic"
    drawing.add_internal_topic(topic)
    step = drawing.suffixed(name, "-subscription-registration-processor", _REGISTRATION)
    keyed = drawing.keyed(step, foreign_key, 1)
    send = LazyStep(
        step,
        lambda versioned: ops.ForeignKeySend(foreign_key, keyed, foreign, primary, left_value, is_left, versioned),
    )
    drawing.add(left._node, send)
    if other_partitioner is not None:
        drawing.check(step, other_partitioner, 4)
    sink = SinkNode(
        drawing.suffixed(name, "-subscription-registration-sink", "KTABLE-SINK-"),
        topic,
        foreign,
        SubscriptionSerde(primary),
        _by_key_alone(other_partitioner),
    )
    drawing.add(send, sink)
    source = SourceNode(
        drawing.suffixed(name, "-subscription-registration-source", "KTABLE-SOURCE-"),
        (topic,),
        None,
        foreign,
        SubscriptionSerde(primary),
    )
    drawing.add(sink, source)
    drawing.copartition(right._sources, frozenset({source.name}))

    # ---- the foreign side keeps the subscriptions and answers them
    subscriptions = drawing.suffixed(name, "-subscription-store", _STORE)
    if name is None:
        drawing.note_unnamed(subscriptions)
    spec = StoreSpec("subscriptions", subscriptions, foreign, SubscriptionSerde(primary))
    step = drawing.suffixed(name, "-subscription-receive", _PROCESSOR)
    receive = StepNode(step, ops.SubscriptionReceive(subscriptions), (spec,))
    drawing.add(source, receive)
    foreign_view = right.view()
    step = drawing.suffixed(name, "-subscription-join-foreign", _PROCESSOR)
    answer = StepNode(step, ops.SubscriptionJoin(foreign_view), (), stores_of(foreign_view))
    drawing.add(receive, answer)
    changed = LazyStep(
        drawing.suffixed(name, "-foreign-join-subscription", _PROCESSOR),
        lambda versioned: ops.ForeignTableJoin(subscriptions, foreign, versioned),
        (spec,),
    )
    drawing.add(right._node, changed)
    topic = drawing.suffixed(name, "-subscription-response", _RESPONSE) + "-topic"
    drawing.add_internal_topic(topic)
    if partitioner is not None:
        drawing.check(step, partitioner, 4)
    sink = SinkNode(
        drawing.suffixed(name, "-subscription-response-sink", "KTABLE-SINK-"),
        topic,
        primary,
        ResponseSerde(right_value),
        _by_key_alone(partitioner) or primary_partition,
    )
    drawing.add(answer, sink)
    drawing.add(changed, sink)

    # ---- the left rows take the answers
    source = SourceNode(
        drawing.suffixed(name, "-subscription-response-source", "KTABLE-SOURCE-"),
        (topic,),
        None,
        primary,
        ResponseSerde(right_value),
    )
    drawing.add(sink, source)
    sources = drawing.copartition(left._sources, frozenset({source.name}))
    primary_view = left.view()
    step = drawing.suffixed(name, "-subscription-response-resolver", _RESOLVER)
    keyed_joiner = drawing.keyed(step, joiner, 2)
    resolve = StepNode(
        step,
        ops.ResponseJoin(primary_view, joiner, keyed_joiner, left_value, is_left),
        (),
        stores_of(primary_view),
    )
    drawing.add(source, resolve)
    result = drawing.suffixed(name, "-result", _OUTPUT)
    materialized = drawing.materialized(store, _OUTPUT, left._key, value)
    table = SourceTable(materialized.key_value(primary, drawing.default_value), materialized.queryable)
    node = TableNode(result, table)
    node.output_versioned = materialized.versioned
    drawing.add(resolve, node)
    return KTable(drawing, node, result, left._key, materialized.value, sources, table)


def primary_partition(topic: str, key: Any, response: Response, partitions: int) -> int | None:
    return response.primary_partition


class _ByKeyAlone:
    """A user's partitioner for an internal topic: it sees the key, but not the message."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner

    def __call__(self, topic: str, key: Any, value: Any, partitions: int) -> int | None:
        return self._partitioner(topic, key, None, partitions)


def _by_key_alone(partitioner: Partitioner | None) -> Partitioner | None:
    return None if partitioner is None else _ByKeyAlone(partitioner)
