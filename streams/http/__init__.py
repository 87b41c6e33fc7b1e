"""HTTP on a worker: questions from other machines, metrics and probes."""
