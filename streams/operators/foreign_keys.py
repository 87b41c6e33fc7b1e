"""Foreign-key table joins: left rows subscribe to foreign rows, which answer; answers to a row that has changed since
are discarded. It owns who asks whom and when; the messages' bytes are the internal serdes', the way between the two
tables' partitions is the topology's.

A subscription travels as a stream record under its foreign key, a response under the left row's own (primary) key.
Foreign keys are compared as the bytes they are serialised to. Results of a left update carry the later timestamp of
both rows, those of a foreign update the foreign record's alone.
"""

from typing import Any

from headwater.dsl import ops
from headwater.dsl.internal_serdes import Instruction, Response, Subscription, SubscriptionSerde
from headwater.dsl.partitioner import murmur3_128
from headwater.dsl.records import Headers
from headwater.errors import StreamsError
from headwater.streams.compile import Site, Step, rule

__all__: list[str] = []

DELETE, DELETE_AND_ANSWER, ANSWER_ALWAYS, ANSWER_IF_FOUND = Instruction


@rule(ops.ForeignKeySend)
def send_subscriptions(op: ops.ForeignKeySend, site: Site) -> Step:
    """Emit, for each update of the left table, the subscriptions that end and begin with it.

    A left row without a foreign key subscribes to nothing: an inner join drops and counts it (after unsubscribing), a
    left join asks all the same, to be answered without a value. Out-of-order updates of a versioned table are dropped
    and counted.
    """
    extract, keyed, left, versioned = op.foreign_key, op.keyed, op.left, op.versioned
    encode_foreign, encode_value = op.foreign_serde.encode, op.value_serde.encode
    drop, fault, forward, context = site.drop, site.fault, site.forward, site.context

    def foreign_key(key: Any, value: Any) -> Any:
        if value is None:
            return None
        return extract(key, value) if keyed else extract(value)

    def changed(new_foreign: Any, old_foreign: Any) -> bool:
        return new_foreign is None or bool(encode_foreign(new_foreign) != encode_foreign(old_foreign))

    def plan(key: Any, new: Any, old: Any) -> list[tuple[Any, Instruction]]:
        old_foreign = foreign_key(key, old)
        new_foreign = foreign_key(key, new)
        if left:
            if new is None and old is None:
                return []
            ask = [(new_foreign, ANSWER_ALWAYS)]
            if old_foreign is not None and changed(new_foreign, old_foreign):
                return [(old_foreign, DELETE), *ask]
            return ask
        if new_foreign is None:
            if new is not None:
                drop()
            return [] if old_foreign is None else [(old_foreign, DELETE_AND_ANSWER)]
        if old_foreign is not None and changed(new_foreign, old_foreign):
            # The new key must answer even without a row, for there may be a result of the old one to delete.
            return [(old_foreign, DELETE), (new_foreign, ANSWER_ALWAYS)]
        return [(new_foreign, ANSWER_IF_FOUND)]

    def send(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        if versioned and not latest:
            drop()
            return
        try:
            steps = plan(key, new, old)
            hashed = murmur3_128(encode_value(new)) if steps and new is not None else None
        except Exception as error:
            fault(error, key, new, timestamp, headers)
            return
        for foreign, instruction in steps:
            subscription = Subscription(hashed, instruction, key, primary_partition=context.partition)
            forward(foreign, subscription, timestamp, headers)

    return send


@rule(ops.SubscriptionReceive)
def receive_subscriptions(op: ops.SubscriptionReceive, site: Site) -> Step:
    """Keep or remove each subscription, then emit it; one without a foreign key is not kept."""
    store, spec = site.store(op.store), site.spec(op.store)
    encode_foreign, encode_primary = spec.key.encode, _primary_serde(op.store, site).encode
    drop, fault, forward = site.drop, site.fault, site.forward

    def receive(foreign: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
        instruction = subscription.instruction
        if foreign is None:
            if instruction != ANSWER_ALWAYS:
                drop()
                return
        else:
            try:
                place = encode_foreign(foreign), encode_primary(subscription.primary_key)
                if instruction in (DELETE, DELETE_AND_ANSWER):
                    store.delete(*place)
                else:
                    store.put(*place, subscription, timestamp)
            except Exception as error:
                fault(error, foreign, subscription, timestamp, headers)
                return
        forward(foreign, subscription, timestamp, headers)

    return receive


@rule(ops.SubscriptionJoin)
def answer_subscriptions(op: ops.SubscriptionJoin, site: Site) -> Step:
    """Emit the foreign row as the response to each subscription that asks for one, at the later one's timestamp."""
    get, fault, forward = site.view(op.foreign).get, site.fault, site.forward

    def answer(foreign: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
        hashed, instruction, primary_key, _, partition = subscription
        try:
            row = None if foreign is None else get(foreign)
        except Exception as error:
            fault(error, foreign, subscription, timestamp, headers)
            return
        if instruction == DELETE or (instruction == ANSWER_IF_FOUND and row is None):
            return
        value = None if row is None or instruction == DELETE_AND_ANSWER else row[0]
        if row is not None and row[1] > timestamp:
            timestamp = row[1]
        forward(primary_key, Response(hashed, value, primary_partition=partition), timestamp, headers)

    return answer


@rule(ops.ForeignTableJoin)
def answer_all_subscribers(op: ops.ForeignTableJoin, site: Site) -> Step:
    """Emit each foreign update as the response to all subscriptions of its key, in order of the serialised primary key.

    Null keys, and out-of-order updates of a versioned table, are dropped and counted.
    """
    scan = site.store(op.store).scan
    encode_foreign, versioned = op.foreign_serde.encode, op.versioned
    drop, fault, forward = site.drop, site.fault, site.forward

    def answer(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        if key is None or (versioned and not latest):
            drop()
            return
        try:
            for _, (subscription, _) in scan(encode_foreign(key)):
                response = Response(subscription.hash, new, primary_partition=subscription.primary_partition)
                forward(subscription.primary_key, response, timestamp, headers)
        except Exception as error:
            fault(error, key, new, timestamp, headers)

    return answer


@rule(ops.ResponseJoin)
def join_responses(op: ops.ResponseJoin, site: Site) -> Step:
    """Emit each response joined with the left row it was made for; if that row has changed since, drop and count it.

    Without a foreign value an inner join emits a deletion, a left join joins with None while the left row exists.
    """
    joiner, keyed, left, encode_value = op.joiner, op.keyed, op.left, op.value_serde.encode
    get = site.view(op.primary).get
    drop, fault, forward = site.drop, site.fault, site.forward

    def join(key: Any, response: Response, timestamp: int, headers: Headers) -> None:
        try:
            row = get(key)
            value = None if row is None else row[0]
            if response.hash != (None if row is None else murmur3_128(encode_value(value))):
                drop()
                return
            foreign = response.foreign_value
            if foreign is None and (not left or row is None):
                result = None
            else:
                result = joiner(key, value, foreign) if keyed else joiner(value, foreign)
        except Exception as error:
            fault(error, key, response, timestamp, headers)
            return
        forward(key, result, timestamp, headers)

    return join


def _primary_serde(store: str, site: Site) -> Any:
    serde = site.spec(store).value
    if isinstance(serde, SubscriptionSerde):
        return serde.primary
    raise StreamsError(f"step {site.node!r}: the store {store!r} must keep subscriptions, but its values are {serde!r}")
