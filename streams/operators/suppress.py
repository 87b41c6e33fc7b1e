"""Suppression: a table's updates held back until their window has closed, a time has passed or the buffer is full. It
owns when an update goes on; the buffer's order and its idea of size are the store's.
"""

from typing import Any

from headwater.dsl import ops
from headwater.dsl.records import Headers
from headwater.errors import StreamsError
from headwater.streams.compile import Site, Step, rule
from headwater.streams.operators.held import context_of, resume

__all__: list[str] = []


@rule(ops.TableSuppress)
def suppress_updates(op: ops.TableSuppress, site: Site) -> Step:
    """Emit the latest update of each key once its time has come, by (time, serialised key), as the record it was.

    Until the window closes: when stream time reaches the window's end + grace; deletions are swallowed. Until a time
    limit: when stream time is the limit past the timestamp of the key's first update held back. Stream time is that of
    the updates which arrive here, so nothing is emitted without a new one.
    """
    suppress = op.suppress
    closes = suppress.kind == "window-closes"
    wait_ms = op.grace_ms if closes else suppress.limit_ms or 0
    buffer, spec = site.store(op.buffer), site.spec(op.buffer)
    encode_key, decode_key = spec.key.encode, spec.key.decode
    encode, decode = spec.value.encode, spec.value.decode
    fault, forward, context = site.fault, site.forward, site.context
    memory = site.memory(op.buffer, stream_time=-1)
    max_records, max_bytes = suppress.max_records, suppress.max_bytes

    def is_full() -> bool:
        return (max_records is not None and len(buffer) > max_records) or (
            max_bytes is not None and buffer.byte_size > max_bytes
        )

    def emit_first() -> None:
        key, change = buffer.first()
        if change.new is not None or not closes:
            new = None if change.new is None else decode(change.new)
            old = None if change.old is None else decode(change.old)
            held = change.context
            resume(context, held, forward, decode_key(key), new, old, True, held.timestamp, held.headers)
        # Only now: a view of this table shows the prior value until the update has been emitted.
        buffer.pop()

    def hold(key: Any, new: Any, old: Any, latest: bool, timestamp: int, headers: Headers) -> None:
        try:
            if timestamp > memory.stream_time:
                memory.stream_time = timestamp
            buffer.put(
                key.end if closes else timestamp,
                encode_key(key),
                None if new is None else encode(new),
                None if old is None else encode(old),
                context_of(context, timestamp, headers),
            )
            due = memory.stream_time - wait_ms
            while buffer.min_time <= due:
                emit_first()
            if is_full():
                if suppress.full == "fail":
                    raise _full(op, site.node, len(buffer), buffer.byte_size)
                while is_full():
                    emit_first()
        except Exception as error:
            fault(error, key, new, timestamp, headers)

    return hold


def _full(op: ops.TableSuppress, node: str, records: int, size: int) -> StreamsError:
    bounds = op.suppress.max_records, op.suppress.max_bytes
    most_records, most_bytes = ("any" if bound is None else str(bound) for bound in bounds)
    return StreamsError(
        f"step {node!r}: the buffer {op.buffer!r} is full with {records} of {most_records} records and {size} of "
        f"{most_bytes} bytes: raise max_records= or max_bytes=, shorten what it waits for, or let it emit early with "
        'Suppress.until_time_limit(…, full="emit-early")'
    )
