"""Processor: the class users derive from for process() and add_processor(). It owns the three methods alone; what a
processor may do is its context's."""

from headwater.dsl.records import Record
from headwater.streams.context import ProcessorContext

__all__ = ["Processor"]


class Processor:
    """A step of your own: `process` gets each record and forwards what it likes through `self.context`.

    One instance runs per task. Public attributes that hold plain data (numbers, text, bytes, None, schedules, and
    lists, tuples, dicts and sets of these) and have changed since `init` are kept over a restart: they are set again
    after `init`. Stores, stream time and wall clock are there in `init` already.

    >>> from headwater import Processor, Topology, TopologyTestDriver
    >>> class Numbered(Processor):
    ...     seen = 0
    ...     def process(self, record):
    ...         self.seen += 1
    ...         self.context.forward(record.replace(value=f"{self.seen}: {record.value}"))
    >>> topology = Topology().add_source("in", "a").add_processor("p", Numbered, "in").add_sink("out", "b", "p")
    >>> with TopologyTestDriver(topology) as driver:
    ...     driver.input("a").send("k", "x", at=0)
    ...     driver.output("b").read_all()[0].value
    '1: x'
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called once before the first record: fetch stores and schedule punctuators here.

        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Ready(Processor):
        ...     def init(self, context):
        ...         super().init(context)
        ...         print("task", context.task_id)
        >>> with TopologyTestDriver(Topology().add_source("in", "a").add_processor("p", Ready, "in")):
        ...     print("running")
        task 0_0
        running
        """
        self.context = context

    def process(self, record: Record) -> None:
        """Called with each record.

        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Twice(Processor):
        ...     def process(self, record):
        ...         self.context.forward(record.replace(value=record.value * 2))
        >>> topology = Topology().add_source("in", "a").add_processor("p", Twice, "in").add_sink("out", "b", "p")
        >>> with TopologyTestDriver(topology) as driver:
        ...     driver.input("a").send("k", 21, at=0)
        ...     driver.output("b").read_all()
        [Record(key='k', value=42, timestamp=0, headers=())]
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no process(self, record)")

    def close(self) -> None:
        """Called once after the last record.

        >>> from headwater import Processor, Topology, TopologyTestDriver
        >>> class Polite(Processor):
        ...     def close(self):
        ...         print("goodbye")
        >>> with TopologyTestDriver(Topology().add_source("in", "a").add_processor("p", Polite, "in")):
        ...     print("running")
        running
        goodbye
        """
