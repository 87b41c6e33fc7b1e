"""WHAT: pure descriptions of topologies; no I/O, no threads."""
