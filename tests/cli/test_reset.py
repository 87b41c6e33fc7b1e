"""`headwater reset`: an application begins anew, and only when nobody runs it."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import Admin, Consumer
from headwater.streams.cli.app_file import load_app
from headwater.streams.reset import open_reset
from headwater.streams.run import open_app
from tests.cli.conftest import Command, settings
from tests.cli.services import fill, running, write

APP = """
    from headwater import StreamsBuilder

    builder = StreamsBuilder()
    counts = builder.stream("words").group_by(lambda key, value: key, name="again").count(store="counts")
    counts.to_stream().to("counted")
    topology = builder.build()
"""


def process_all(folder: Path, path: str) -> dict[str, int]:
    """Run the application until all is processed and return its counts."""
    topology, stem = load_app(path)
    with open_app(topology, settings([], {"app_id": stem}), f"log://{folder / '.headwater'}") as app:
        app.wait_idle()
        return dict(app.store("counts").all())


def results(folder: Path) -> int:
    with Consumer(f"log://{folder / '.headwater'}", "counted") as consumer:
        return len(consumer.poll(1000))


@pytest.fixture
def path(folder: Path) -> str:
    path = write(folder, text=APP)
    fill(folder, "tea", "milk", "tea", partitions=2, at=1000)
    assert process_all(folder, path) == {"tea": 2, "milk": 1}
    assert results(folder) == 3
    return path


def test_it_begins_anew(folder: Path, headwater: Command, path: str) -> None:
    found = headwater("reset", path, "--yes")
    assert found.code == 0, found.err
    assert "internal topic to delete: words-again-repartition" in found.text
    assert "words will begin anew" in found.text
    assert [info.name for info in Admin(f"log://{folder / '.headwater'}").topics()] == ["counted", "words"]
    # All of it once more: the log must not take the results for those it has.
    assert process_all(folder, path) == {"tea": 2, "milk": 1}
    assert results(folder) == 6


def test_state_that_was_deleted_by_hand_is_refused_and_made_again_by_a_reset(
    folder: Path, headwater: Command, path: str
) -> None:
    import shutil

    shutil.rmtree(folder / ".headwater" / "apps" / "words")
    found = headwater("run", path)
    assert found.code == 1
    assert "has no state" in found.err
    assert "headwater reset" in found.err
    assert headwater("reset", path, "--yes").code == 0
    assert process_all(folder, path) == {"tea": 2, "milk": 1}
    assert results(folder) == 6


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        (["--to-latest"], {}),
        (["--to-earliest"], {"tea": 2, "milk": 1}),
        (["--to-time", "1500"], {"coffee": 1}),
        (["--to-offset", "99"], {}),
        (["--to-latest", "--topic", "words"], {}),
    ],
)
def test_where_it_reads_from(
    folder: Path, headwater: Command, path: str, options: list[str], counts: dict[str, int]
) -> None:
    if "coffee" in counts:
        fill(folder, "coffee", at=2000)
    found = headwater("reset", path, "--yes", *options)
    assert found.code == 0, found.err
    assert process_all(folder, path) == counts
    fill(folder, "tea", at=3000)
    assert process_all(folder, path) == {**counts, "tea": counts.get("tea", 0) + 1}


def test_a_dry_run_changes_nothing(folder: Path, headwater: Command, path: str) -> None:
    before = sorted(str(file) for file in folder.rglob("*"))
    found = headwater("reset", path, "--dry-run", "--to-latest")
    assert found.code == 0
    assert "nothing was changed" in found.text
    assert sorted(str(file) for file in folder.rglob("*")) == before
    told = headwater("reset", path, "--dry-run", "--json").json
    assert told["done"] is False
    assert told["topics"] == ["words-again-repartition"]
    assert sum(offset["before"] or 0 for offset in told["offsets"]) == 3
    assert process_all(folder, path) == {"tea": 2, "milk": 1}
    assert results(folder) == 3


def test_it_is_refused_while_a_worker_is_alive(folder: Path, headwater: Command) -> None:
    path = write(folder)
    fill(folder, "tea")
    with running(folder, expected=1) as process:
        found = headwater("reset", path, "--yes")
        assert (found.code, found.text) == (1, "")
        assert "'words' has a live worker: stop it first" in found.err
        assert process.poll() is None
        assert headwater("query", "words", "counts", "get", "tea").code == 0


def test_no_worker_starts_meanwhile_or_after_an_interruption(folder: Path, headwater: Command, path: str) -> None:
    topology, stem = load_app(path)
    broker = f"log://{folder / '.headwater'}"
    config = settings([], {"app_id": stem})
    with open_reset(topology, config, broker) as reset:
        found = headwater("run", path)
        assert (found.code, found.err) == (
            1, "headwater: application 'words' is being reset: start it when that is done\n"
        )  # fmt: skip
        reset.topics.append("nothing")
        with pytest.raises(Exception, match="no topic 'nothing'"):
            reset.run()
    assert "a reset of 'words' was interrupted" in headwater("run", path).err
    assert headwater("reset", path, "--yes").code == 0
    assert process_all(folder, path) == {"tea": 2, "milk": 1}


def test_it_asks_first(folder: Path, headwater: Command, path: str) -> None:
    found = headwater("reset", path)
    assert found.code == 1
    assert "confirm with --yes" in found.err
    assert _answered(folder, path, b"n\n") == 1
    assert process_all(folder, path) == {"tea": 2, "milk": 1}
    assert results(folder) == 3
    assert _answered(folder, path, b"y\n") == 0
    assert process_all(folder, path) == {"tea": 2, "milk": 1}
    assert results(folder) == 6


def _answered(folder: Path, path: str, answer: bytes) -> int:
    """The exit code when the question is answered on a terminal."""
    ours, theirs = pty.openpty()
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "reset", path]
    process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(theirs)
    os.write(ours, answer)
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert b"Go on? [y/N]" in out
    return process.returncode


def test_what_is_wrong_is_told(folder: Path, headwater: Command, path: str) -> None:
    assert "does not read nothing: its inputs are words" in headwater(
        "reset", path, "--to-latest", "--topic", "nothing", "--yes"
    ).err
    assert "give one" in headwater("reset", path, "--topic", "words", "--yes").err
    assert headwater("reset", path, "--to-latest", "--to-earliest").code == 2
    assert "There is no log in" in headwater("reset", path, "--broker", "log://./nowhere").err


def test_only_what_is_no_longer_used_is_deleted(folder: Path, headwater: Command, path: str) -> None:
    changed = APP.replace('.count(store="counts")', '.reduce(lambda old, new: new, store="latest")')
    without = write(folder, text=changed.replace("counted", "latest-words"))
    broker = f"log://{folder / '.headwater'}"
    topology, stem = load_app(without)
    with open_app(topology, settings([], {"app_id": stem}), broker) as app:
        app.wait_idle()
    shown = headwater("reset", without, "--unused", "--dry-run")
    assert shown.text.splitlines() == ["store to delete: counts", "(nothing was changed: --dry-run)"]
    found = headwater("reset", without, "--unused", "--json")
    assert found.json["stores"] == ["counts"]
    assert found.json["topics"] == []
    assert headwater("reset", without, "--unused", "--dry-run").text.startswith("words has nothing unused.")
    refused = headwater("reset", without, "--unused", "--to-latest", "--yes")
    assert refused.code == 2
    assert "--to-latest: not allowed with argument --unused" in refused.err
    # It goes on where it was, and so does the one with the store that was deleted: with an empty one.
    fill(folder, "tea", at=2000)
    assert process_all(folder, write(folder, text=APP)) == {"tea": 1}
