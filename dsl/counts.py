"""What a count is made of: where it begins, and one more or one fewer."""

from __future__ import annotations

from typing import Any


def zero() -> int:
    """Where a count begins."""
    return 0


def plus_one(key: Any, value: Any, count: int) -> int:
    """A count with one more record."""
    return count + 1


def minus_one(key: Any, value: Any, count: int) -> int:
    """A count with one record fewer."""
    return count - 1
