"""What the commands print: tables, JSON, sizes and times for people, and progress on a terminal. It owns their looks;
results go to standard output, everything else to standard error."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headwater.streams.clocks import date_of

__all__ = ["duration_text", "print_json", "print_table", "progress", "size_text", "time_text"]

_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))


def print_json(content: object) -> None:
    """Print one line of JSON."""
    import msgspec

    print(msgspec.json.encode(content).decode())


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a head, columns of numbers to the right; None is a dash.

    >>> print_table(["topic", "records"], [["orders", 1200], ["users", 7]])
    topic   records
    orders     1200
    users         7
    """
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [bool(rows) and all(isinstance(row[at], int | None) for row in rows) for at in range(len(head))]
    for line in (list(head), *texts):
        cells = zip(line, widths, right, strict=True)
        print("  ".join(cell.rjust(width) if numeric else cell.ljust(width) for cell, width, numeric in cells).rstrip())


def size_text(size: int | None) -> str | None:
    """Say a number of bytes for people.

    >>> size_text(512), size_text(64 << 20), size_text(1_500_000_000)
    ('512 B', '64 MiB', '1.4 GiB')
    """
    if size is None:
        return None
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.1f}".removesuffix(".0") + f" {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def duration_text(milliseconds: int | None) -> str:
    """Say a duration as the options take it.

    >>> duration_text(7 * 86_400_000), duration_text(90_000), duration_text(None)
    ('7d', '1m30s', 'forever')
    """
    if milliseconds is None:
        return "forever"
    parts = []
    for length, unit in _DURATIONS:
        number, milliseconds = divmod(milliseconds, length)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0ms"


def time_text(milliseconds: int | None) -> str | None:
    """Say a timestamp as the options take it; one that no calendar has stays a number.

    >>> time_text(0), time_text(10**18)
    ('1970-01-01T00:00:00.000Z', '1000000000000000000')
    """
    if milliseconds is None:
        return None
    return date_of(milliseconds)


@contextmanager
def progress(label: str, total: int, *, bytes_: bool = False) -> Iterator[Callable[[int], None]]:
    """Show on the terminal how much of the total is done, and give the function that says so; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if bytes_ else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
