"""Kafka: the same applications against a real cluster."""
