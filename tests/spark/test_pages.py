"""Rows in pages, without Spark: they equal those of a sorted map, and cost as many cells as they should."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headwater.errors import StateError
from headwater.state.backend import Backend
from headwater.state.memory import MemoryBackend
from headwater.streams.spark import state
from headwater.streams.spark.state import PagedBackend
from tests.state.test_backends import (  # noqa: F401 - run here over pages
    test_a_batch_that_fails_writes_nothing,
    test_a_range_without_keys_is_empty,
    test_an_unknown_store_is_named,
    test_closing_twice_is_closing_once,
    test_deleting_what_is_not_there_is_no_fault,
    test_empty_keys_and_empty_rows_are_rows,
    test_opened_again_at_once_it_has_the_same_rows,
    test_rows_come_in_the_order_of_the_keys_asked_for,
    test_stores_are_apart,
)

STORES = ["a", "b", "|task"]


class DictCells:
    """Cells in a dictionary; `reads` and `writes` count the cells that went over the wire."""

    def __init__(self, cells: dict[bytes, bytes] | None = None) -> None:
        self.cells = {} if cells is None else cells
        self.reads: Counter[bytes] = Counter()
        self.writes: Counter[bytes] = Counter()

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def put(self, key: bytes, data: bytes) -> None:
        self.write({key: data})

    def delete(self, key: bytes) -> None:
        self.write({key: None})

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads.update(keys)
        return [self.cells.get(key) for key in keys]

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.writes.update(changes.keys())
        for key, data in changes.items():
            if data is None:
                self.cells.pop(key, None)
            else:
                self.cells[key] = data

    def pages(self) -> int:
        return sum(key.startswith(b"p") for key in self.cells)


@pytest.fixture
def backend_factory() -> Callable[[Iterable[str]], Backend]:
    """As that of tests/state: opened again, it has what it had."""
    opened: dict[frozenset[str], PagedBackend] = {}
    cells: dict[frozenset[str], DictCells] = {}

    def open_again(stores: Iterable[str]) -> Backend:
        names = frozenset(stores)
        if names in opened:
            opened[names].flush()
        opened[names] = PagedBackend(cells.setdefault(names, DictCells()), names, page_bytes=40)
        return opened[names]

    return open_again


@pytest.fixture
def backend(backend_factory: Callable[[Iterable[str]], Backend]) -> Backend:
    return backend_factory(["a", "b"])


KEYS = st.integers(0, 400).map(lambda number: b"%d" % (number * number)) | st.binary(max_size=3)
ROWS = st.none() | st.binary(max_size=8) | st.integers(0, 200).map(bytes)


class Pages(RuleBasedStateMachine):
    """What happens to a shard's rows in its life, beside a sorted map."""

    @initialize(page_bytes=st.sampled_from([16, 64, 256]), held_bytes=st.sampled_from([0, 200, 1 << 20]))
    def begin(self, page_bytes: int, held_bytes: int) -> None:
        self.cells = DictCells()
        self.open = lambda: PagedBackend(self.cells, STORES, page_bytes=page_bytes, held_bytes=held_bytes)
        self.paged = self.open()
        self.model = MemoryBackend(STORES)

    @rule(batch=st.dictionaries(st.sampled_from(STORES), st.dictionaries(KEYS, ROWS, max_size=40), max_size=3))
    def write(self, batch: dict[str, dict[bytes, bytes | None]]) -> None:
        self.paged.write(batch)
        self.model.write(batch)

    @rule(store=st.sampled_from(STORES), count=st.integers(1, 300), seed=st.integers(0, 99))
    def write_many(self, store: str, count: int, seed: int) -> None:
        numbers = Random(seed).sample(range(400), count)
        self.write({store: {b"%d" % (number * number): b"row %d" % number for number in numbers}})

    @rule(store=st.sampled_from(STORES), lo=KEYS, hi=st.none() | KEYS)
    def delete_range(self, store: str, lo: bytes, hi: bytes | None) -> None:
        self.write({store: {key: None for key, _ in self.model.scan(store, lo, hi)}})

    @rule(store=st.sampled_from(STORES), keys=st.lists(KEYS, max_size=40))
    def get_many(self, store: str, keys: list[bytes]) -> None:
        assert self.paged.get_many(store, keys) == self.model.get_many(store, keys)

    @rule(store=st.sampled_from(STORES), lo=KEYS, hi=st.none() | KEYS, reverse=st.booleans())
    def scan(self, store: str, lo: bytes, hi: bytes | None, reverse: bool) -> None:
        assert list(self.paged.scan(store, lo, hi, reverse)) == list(self.model.scan(store, lo, hi, reverse))

    @rule(one=st.booleans(), other=st.booleans(), every=st.integers(1, 9))
    def scan_two_at_once_with_a_flush_between(self, one: bool, other: bool, every: int) -> None:
        scans = [self.paged.scan("a", b"", None, one), self.paged.scan("a", b"", None, other)]
        wanted = [list(self.model.scan("a", b"", None, one)), list(self.model.scan("a", b"", None, other))]
        found: list[list[tuple[bytes, bytes]]] = [[], []]
        for turn in range(len(wanted[0]) + 1):
            if turn == every:
                self.paged.flush()
            for scan, rows in zip(scans, found, strict=True):
                rows.extend(row for row in [next(scan, None)] if row is not None)
        assert found == wanted

    @rule()
    def flush(self) -> None:
        self.paged.flush()
        self.cells.writes.clear()
        self.paged.flush()
        assert not self.cells.writes

    @rule()
    def restart(self) -> None:
        self.paged.flush()
        self.paged = self.open()
        # No page without a directory that names it, nor the other way round.
        named = 0
        for store in ("a", "b"):
            kept = self.paged._store(store)
            named += len(kept.numbers)
            assert kept.starts == sorted(set(kept.starts))
            assert kept.starts[:1] in ([], [b""])
        assert named == self.cells.pages()

    # At the end alone: a scan of everything after each step would leave no page to be read later.
    def teardown(self) -> None:
        if hasattr(self, "paged"):
            for again in (self.paged.flush, self.restart):
                again()
                for store in STORES:
                    rows = list(self.model.scan(store, b"", None))
                    assert list(self.paged.scan(store, b"", None)) == rows
                    assert store.startswith("|") or self.paged.counts().get(store, 0) == len(rows)


Pages.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestPages = Pages.TestCase


@pytest.mark.parametrize("held_bytes", [1_000, 20_000, 1 << 20])
@pytest.mark.parametrize("page_bytes", [60, 500, 2_000])
def test_a_long_life(page_bytes, held_bytes):
    """The same with more rows than an example can have, so that most pages are of a good size."""
    random = Random(page_bytes + held_bytes)
    cells = DictCells()
    paged = PagedBackend(cells, STORES, page_bytes=page_bytes, held_bytes=held_bytes)
    model = MemoryBackend(STORES)
    for turn in range(600):
        # The keys in use move on, as times do, and rows behind them go.
        keys = [b"%06d" % (turn * 3 + int(random.expovariate(0.005))) for _ in range(random.randrange(40))]
        old = [key for key, _ in model.scan("a", b"", b"%06d" % (turn * 3 - 200))] if turn % 7 == 0 else []
        rows = {**dict.fromkeys(old), **{key: random.choice([None, key, key * 3, b""]) for key in keys}}
        for backend in (paged, model):
            backend.write({"a": rows, "|task": {b"turn": b"%d" % turn}})
        assert paged.get_many("a", keys[::3]) == model.get_many("a", keys[::3])
        lo, hi = sorted(random.choices([*keys, b"", b"9"], k=2))
        reverse = random.random() < 0.5
        assert list(paged.scan("a", lo, hi, reverse)) == list(model.scan("a", lo, hi, reverse))
        if random.random() < 0.4:
            paged.flush()
        if random.random() < 0.1:
            paged.flush()
            paged = PagedBackend(cells, STORES, page_bytes=page_bytes, held_bytes=held_bytes)
    paged.flush()
    assert list(paged.scan("a", b"", None)) == list(model.scan("a", b"", None))
    # Each page of the rows that went is gone as well.
    left = sum(len(key) + len(row) + 4 for key, row in model.scan("a", b"", None))
    assert cells.pages() < 4 * left / page_bytes + 4


# What it costs.

COUNT = 20_000


def _key(number: int) -> bytes:
    return b"user-%07d" % (number * 7919 % 10_000_019)


def _row(number: int) -> bytes:
    return b"%016d" % number


@pytest.fixture(scope="module")
def filled() -> dict[bytes, bytes]:
    """The cells of a store with many rows, written in the order of no key."""
    cells = DictCells()
    backend = PagedBackend(cells, STORES)
    backend.write({"a": {_key(number): _row(number) for number in range(COUNT)}, "|task": {b"offset": b"7"}})
    backend.flush()
    return cells.cells


def test_a_bulk_load_puts_each_page_once(filled):
    cells = DictCells(dict(filled))
    # 32 bytes a row.
    assert COUNT * 32 / 8192 < cells.pages() < 2 * COUNT * 32 / 8192
    assert len(cells.cells) == cells.pages() + 2


def test_a_bulk_load_is_cut_before_it_is_flushed():
    backend = PagedBackend(DictCells(), STORES)
    backend.write({"a": {_key(number): _row(number) for number in range(COUNT)}})
    # Else each scan until the flush would sort them all.
    assert max(page.size for page in backend._stores["a"].pages.values()) <= 8192


@pytest.mark.parametrize("order", ["up", "down", "random"])
def test_pages_are_well_filled_after_many_small_loads(order):
    numbers = list(range(COUNT))
    if order == "down":
        numbers.reverse()
    elif order == "random":
        Random(0).shuffle(numbers)
    cells = DictCells()
    for begin in range(0, COUNT, 500):
        backend = PagedBackend(cells, STORES)
        backend.write({"a": {b"%012d" % number: _row(number) for number in numbers[begin : begin + 500]}})
        backend.flush()
    assert cells.pages() < 2.7 * COUNT * 32 / 8192
    if order != "random":
        # Each load touches the page at its end: the pages of earlier loads stay as they are.
        assert sum(cells.writes.values()) < 5 * COUNT / 500 + 2 * cells.pages()


def test_an_empty_batch_reads_and_writes_one_cell(filled):
    cells = DictCells(dict(filled))
    backend = PagedBackend(cells, STORES)
    assert list(backend.scan("|task", b"", None)) == [(b"offset", b"7")]
    backend.flush()
    assert (cells.reads, cells.writes) == ({b"t": 1}, {})
    backend.write({"|task": {b"offset": b"8"}})
    backend.flush()
    assert (cells.reads, cells.writes) == ({b"t": 1}, {b"t": 1})


def test_few_rows_among_many_cost_a_page_each(filled):
    cells = DictCells(dict(filled))
    backend = PagedBackend(cells, STORES)
    keys = [_key(number) for number in range(0, COUNT, COUNT // 10)]
    assert None not in backend.get_many("a", keys)
    backend.write({"a": dict.fromkeys(keys, _row(0))})
    backend.flush()
    # The head, for the next page's number; the directory; a page per key at the most.
    assert sum(cells.reads.values()) <= len(keys) + 2
    assert sum(cells.writes.values()) <= len(keys) + 1
    assert b"da" not in cells.writes


def test_all_rows_cost_each_page_once(filled):
    cells = DictCells(dict(filled))
    backend = PagedBackend(cells, STORES)
    keys = [_key(number) for number in range(COUNT)]
    for begin in range(0, COUNT, 1000):
        backend.get_many("a", keys[begin : begin + 1000])
        backend.write({"a": {key: _row(begin) for key in keys[begin : begin + 1000]}})
    backend.flush()
    assert set(cells.reads.values()) == {1}
    assert set(cells.writes.values()) == {1}


def test_a_scan_that_ends_early_reads_few_pages(filled):
    for reverse in (False, True):
        cells = DictCells(dict(filled))
        rows = PagedBackend(cells, STORES).scan("a", b"", None, reverse)
        next(rows)
        assert cells.reads.total() == 2
        for _ in range(1000):
            next(rows)
        assert cells.reads.total() < cells.pages() / 2
        wanted = sorted(_key(number) for number in range(COUNT))
        if reverse:
            wanted.reverse()
        assert [key for key, _ in rows] == wanted[1001:]
        assert set(cells.reads.values()) == {1}


def test_deleting_what_is_there_and_what_is_not(filled):
    cells = DictCells(dict(filled))
    backend = PagedBackend(cells, STORES)
    backend.write({"a": dict.fromkeys((b"no such row %d" % number for number in range(50)), None), "b": {b"x": None}})
    backend.flush()
    assert not cells.writes
    keys = sorted(_key(number) for number in range(COUNT))
    del keys[::100]
    backend.write({"a": dict.fromkeys(keys, None)})
    backend.flush()
    assert cells.pages() < 4
    assert len(list(PagedBackend(cells, STORES).scan("a", b"", None))) == COUNT // 100


def test_a_store_that_empties_and_fills_keeps_its_page():
    cells = DictCells()
    for turn in range(5):
        backend = PagedBackend(cells, STORES)
        backend.write({"a": {b"k": b"row" if turn % 2 == 0 else None}})
        backend.flush()
    assert cells.writes[b"da"] == 1
    assert cells.pages() == 1


def test_memory_is_bounded(filled, monkeypatch):
    monkeypatch.setattr(state, "_KEYS", 1_000)
    monkeypatch.setattr(state, "_PAGES", 8)
    cells = DictCells(dict(filled))
    pages = cells.pages()
    bound = 100_000
    backend = PagedBackend(cells, STORES, held_bytes=bound)
    # What one step may read beyond it.
    slack = 8 * 8192
    assert bound + slack < COUNT * 32 / 2

    def held() -> int:
        return sum(page.size for page in backend._stores["a"].pages.values())

    keys = []
    for key, _ in backend.scan("a", b"", None):
        keys.append(key)
        assert held() <= bound + slack
    assert keys == sorted(_key(number) for number in range(COUNT))
    Random(1).shuffle(keys)
    cells.reads.clear()
    # A portion of keys reaches all pages: it is their order that lets each be read once.
    backend.write({"a": dict.fromkeys(keys, b"new")})
    assert held() <= bound + slack
    backend.flush()
    assert cells.reads.total() < 1.3 * pages
    assert [row for _, row in PagedBackend(cells, STORES).scan("a", b"", None)] == [b"new"] * COUNT


def test_rows_larger_than_a_page():
    cells = DictCells()
    backend = PagedBackend(cells, STORES)
    rows = {b"%d" % number: bytes(number * 5_000) for number in range(10)}
    for key, row in rows.items():
        backend.write({"a": {key: row}})
        backend.flush()
    assert list(PagedBackend(cells, STORES).scan("a", b"", None)) == sorted(rows.items())
    # Those of 5 KB and less may share one.
    assert cells.pages() >= 9


def test_another_layout_version_is_refused(monkeypatch):
    cells = DictCells()
    backend = PagedBackend(cells, STORES)
    backend.write({"|task": {b"k": b"row"}})
    backend.flush()
    monkeypatch.setattr(state, "_VERSION", 99)
    with pytest.raises(StateError, match="version 1, not 99"):
        PagedBackend(cells, STORES).get_many("|task", [b"k"])


def test_a_missing_page_is_named(filled):
    cells = DictCells({key: data for key, data in filled.items() if key != b"p\0\0\0\0\0\x01"})
    with pytest.raises(StateError, match="Page 1 "):
        list(PagedBackend(cells, STORES).scan("a", b"", None))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=5), st.binary(max_size=5))
def test_what_lies_between_two_keys(one, other):
    if one < other:
        between = state._between(one, other)
        assert one < between <= other
        assert bisect_left([one, other], between) == 1
