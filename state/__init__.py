"""WHAT SURVIVES A CRASH: stores of bytes that know no operator."""
