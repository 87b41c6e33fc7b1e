"""Stream-table joins: each stream record joined with a table's row, now, as of its own time, or after a grace period.
It owns which records are joined and when; the table's rows are read through its view.
"""

from typing import Any

from headwater.dsl import ops
from headwater.dsl.records import Headers
from headwater.errors import StreamsError
from headwater.streams.compile import Site, Step, rule
from headwater.streams.operators.held import context_of, resume

__all__: list[str] = []


@rule(ops.StreamTableJoin)
def join_with_table(op: ops.StreamTableJoin, site: Site) -> Step:
    """Emit each record joined with its key's row: the current one, or of a versioned table the one as of its timestamp.

    Null values are dropped and counted, null keys too in an inner join; without a row an inner join is silent and a
    left join joins with None. With grace a record waits until the newest one that came here is that much younger;
    one already older than that is joined at once.
    """
    drop, fault, forward = site.drop, site.fault, site.forward
    joiner, keyed, left = op.joiner, op.keyed, op.left
    reader = site.view(op.table)
    get, as_of, versioned = reader.get, reader.as_of, reader.versioned

    def joined(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        row = None if key is None else as_of(key, timestamp) if versioned else get(key)
        if row is not None or left:
            other = None if row is None else row[0]
            forward(key, joiner(key, value, other) if keyed else joiner(value, other), timestamp, headers)

    def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            drop()
            return
        try:
            row = None if key is None else as_of(key, timestamp) if versioned else get(key)
            if row is None and not left:
                return
            other = None if row is None else row[0]
            result = joiner(key, value, other) if keyed else joiner(value, other)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        forward(key, result, timestamp, headers)

    if op.buffer is None:
        return join
    return _with_grace(op, site, join) if site.config.compat is None else _like_kafka_streams(op, site, join, joined)


def _like_kafka_streams(op: ops.StreamTableJoin, site: Site, join: Step, joined: Step) -> Step:
    """With grace, and with what Kafka Streams makes of null keys and of joiners that raise."""
    _check_versioned(op, site)
    buffer, spec = site.store(op.buffer or ""), site.spec(op.buffer or "")
    encode_key, decode_key = spec.key.encode, spec.key.decode
    encode, decode = spec.value.encode, spec.value.decode
    fault, context, left = site.fault, site.context, op.left

    def hold(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            join(key, value, timestamp, headers)
            return
        try:
            if key is None:
                raise StreamsError(
                    f"step {site.node!r} joins with grace and got a record without a key, with which Kafka Streams "
                    'throws a NullPointerException (compat="kafka-streams"): drop such records before'
                )
            if not buffer.put(encode_key(key), encode(value), context_of(context, timestamp, headers)):
                joined(key, value, timestamp, headers)
                return
            while (waiting := buffer.due()) is not None:
                held = waiting.context
                args = decode_key(waiting.key), decode(waiting.value), held.timestamp, held.headers
                resume(context, held, joined, *args)
                # Only now: one that has failed is the first again when the next record comes.
                buffer.pop()
        except Exception as error:
            fault(error, key, value, timestamp, headers)

    return hold


def _with_grace(op: ops.StreamTableJoin, site: Site, join: Step) -> Step:
    assert op.buffer is not None
    _check_versioned(op, site)
    buffer, spec = site.store(op.buffer), site.spec(op.buffer)
    encode_key, decode_key = spec.key.encode, spec.key.decode
    encode, decode = spec.value.encode, spec.value.decode
    fault, context = site.fault, site.context

    def hold(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        # What is dropped, or can match no row, has nothing to wait for.
        if value is None or key is None:
            join(key, value, timestamp, headers)
            return
        try:
            waits = buffer.put(encode_key(key), encode(value), context_of(context, timestamp, headers))
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        if not waits:
            join(key, value, timestamp, headers)
            return
        for waiting in buffer.evict():
            held = waiting.context
            resume(context, held, join, decode_key(waiting.key), decode(waiting.value), held.timestamp, held.headers)

    return hold


def _check_versioned(op: ops.StreamTableJoin, site: Site) -> None:
    if not site.view(op.table).versioned:
        raise StreamsError(
            f"step {site.node!r} joins with a grace period, but its table keeps no versions: give the table "
            "store=Versioned(…), or leave out grace="
        )


@rule(ops.GlobalTableJoin)
def join_with_global_table(op: ops.GlobalTableJoin, site: Site) -> Step:
    """Emit each record, under its own key, joined with the global table's row of the key that `select` names.

    Null values are dropped and counted, null selected keys too in an inner join; a left join joins those with None.
    """
    drop, fault, forward = site.drop, site.fault, site.forward
    select, joiner, keyed, left = op.select, op.joiner, op.keyed, op.left
    reader = site.view(op.table)
    get, as_of, versioned = reader.get, reader.as_of, reader.versioned

    def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            table_key = select(key, value)
            if value is None or (table_key is None and not left):
                drop()
                return
            row = None if table_key is None else as_of(table_key, timestamp) if versioned else get(table_key)
            if row is None and not left:
                return
            other = None if row is None else row[0]
            result = joiner(key, value, other) if keyed else joiner(value, other)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
            return
        forward(key, result, timestamp, headers)

    return join
