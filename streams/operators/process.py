"""The user's own processors: one instance per node and task, started when the task is, closed when it is. It owns the
calls; what a processor may do is in ProcessorContext, when punctuators run in Punctuations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.dsl import ops
from headwater.dsl.callables import check_ran, place, processor_faults
from headwater.dsl.records import Headers, Record
from headwater.errors import StreamsError
from headwater.streams.compile import Site, Step, rule
from headwater.streams.context import ProcessorContext
from headwater.streams.processor import Processor

__all__: list[str] = []


@rule(ops.Process)
def process(op: ops.Process, site: Site) -> Step:
    """Give each record to the processor, which forwards what it likes."""
    try:
        processor = op.supplier()
    except Exception as error:
        raise StreamsError(
            f"step {site.node!r}: the supplier ({place(op.supplier)}) failed with {type(error).__name__}: {error}"
        ) from error
    if not isinstance(processor, Processor):
        raise StreamsError(
            f"step {site.node!r}: the supplier ({place(op.supplier)}) must make a Processor, but made {processor!r:.80}"
        )
    faults = processor_faults(processor)
    if faults:
        raise StreamsError("; ".join(f"step {site.node!r}: {fault}" for fault in faults))
    context = ProcessorContext(site, op.fixed_key)
    # A processor may override init and forget super().
    processor.context = context
    init: Callable[[ProcessorContext], object] = processor.init
    site.runs(processor, lambda: check_ran(init, init(context)))
    take, fault = processor.process, site.fault
    if not op.fixed_key:

        def run(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            context.time = timestamp
            try:
                result: object = take(Record(key, value, timestamp, headers))
                if result is not None:
                    check_ran(take, result)
            except Exception as error:
                fault(error, key, value, timestamp, headers)
            finally:
                context.time = None

        return run

    def run_fixed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        context.current = (key,)
        context.time = timestamp
        try:
            result: object = take(Record(key, value, timestamp, headers))
            if result is not None:
                check_ran(take, result)
        except Exception as error:
            fault(error, key, value, timestamp, headers)
        finally:
            context.current = context.time = None

    return run_fixed
