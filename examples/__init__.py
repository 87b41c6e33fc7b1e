"""Topologies as people write them, each a script that runs."""
