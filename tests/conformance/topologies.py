"""The registry of the traces' topologies, written in the public API, one module per group of the oracle's chapters."""

from tests.conformance.case import Case
from tests.conformance.chapters import aggregations, joins, processors, stateless, tables, windows
from tests.conformance.chapters.registry import TOPOLOGIES

__all__ = ["TOPOLOGIES", "Case", "aggregations", "joins", "processors", "stateless", "tables", "windows"]
