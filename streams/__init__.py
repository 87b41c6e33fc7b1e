"""HOW: from a plan to running code."""
