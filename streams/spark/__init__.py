"""Spark as a back end: a topology as one Structured Streaming query whose stages run the shared task."""
