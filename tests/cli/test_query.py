"""`headwater query`: rows of a running application, for people and for scripts."""

from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.services import fill, running, write


def test_rows_of_a_running_application(folder: Path, headwater: Command) -> None:
    write(folder)
    fill(folder, "tea", "milk", "tea", partitions=2, at=1000)
    with running(folder, "--workers", "2", expected=3):
        stores = headwater("query", "words")
        assert stores.lines[0].split() == ["store", "kind", "key", "value"]
        assert [row.split()[:2] for row in stores.lines[1:]] == [["counts", "timestamped"], ["windows", "window"]]
        assert [store["name"] for store in headwater("query", "words", "--json").json] == ["counts", "windows"]

        found = headwater("query", "words.py", "counts", "get", "tea")
        assert (found.code, found.err) == (0, "")
        assert found.lines == ["key  value  timestamp", "tea      2  1970-01-01T00:00:01.000Z"]
        found = headwater("query", "words", "counts", "all", "--json")
        assert found.json == {
            "rows": [
                {"key": "milk", "value": 1, "timestamp": 1000},
                {"key": "tea", "value": 2, "timestamp": 1000},
            ],
            "more": False,
            "missing": [],
        }
        assert headwater("query", "words", "counts").text == headwater("query", "words", "counts", "all").text
        ranged = headwater("query", "words", "counts", "range", "-", "n", "--json").json
        assert [row["key"] for row in ranged["rows"]] == ["milk"]
        limited = headwater("query", "words", "counts", "all", "--limit", "1")
        assert len(limited.lines) == 2
        assert "more than 1: raise --limit" in limited.err

        window = headwater("query", "words", "windows", "fetch", "tea", "--from", "0", "--to", "1000", "--json").json
        assert window["rows"] == [{"key": "tea", "start": 0, "end": 10000, "value": 2, "timestamp": 1000}]
        assert headwater("query", "words", "windows", "fetch", "tea", "--from", "1", "--json").json["rows"] == []
        assert headwater("query", "words", "windows", "get", "tea", "--start", "0").lines[1].split()[3] == "2"

        missing = headwater("query", "words", "counts", "get", "coffee")
        assert (missing.code, missing.text) == (1, "")
        assert "counts has no row for coffee" in missing.err
        missing = headwater("query", "words", "counts", "get", "coffee", "--json")
        assert (missing.code, missing.json["rows"]) == (1, [])

        for words, told in (
            (["nothing", "all"], "there is no store 'nothing', only counts, windows"),
            (["counts", "get"], "get takes 1 key, but got 0"),
            (["counts", "range", "a"], "range takes 2 keys, but got 1"),
            (["counts", "fetch", "a"], "which has no fetch"),
            (["windows", "get", "tea"], "say when it starts"),
        ):
            found = headwater("query", "words", *words)
            assert (found.code, found.text) == (1, "")
            assert told in found.err


@pytest.mark.parametrize("words", [[], ["counts", "all"]])
def test_nobody_runs(folder: Path, headwater: Command, words: list[str]) -> None:
    (folder / ".headwater" / "apps" / "another").mkdir(parents=True)
    found = headwater("query", "words", *words)
    assert found.code == 1
    assert "No worker of 'words' is running on the state in" in found.err
    assert "Applications there: another." in found.err
