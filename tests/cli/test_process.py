"""The installed command as a process: pipes that break, signals, characters a terminal lacks, and what is imported."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import headwater
from tests.cli.conftest import Command, in_environment
from tests.streams.apps import until

HEADWATER = str(Path(sys.executable).with_name("headwater"))


@pytest.fixture
def orders(headwater: Command) -> Command:
    headwater("topics", "create", "orders")
    return headwater


def test_the_installed_command(folder: Path) -> None:
    def run(*words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run([HEADWATER, *words], input=given, capture_output=True, env=in_environment(), timeout=60)

    assert run("topics", "create", "orders").returncode == 0
    assert run("produce", "orders", given="日本\n".encode()).returncode == 0
    assert run("consume", "orders").stdout.decode() == "日本\n"
    failed = run("consume", "nowhere")
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert failed.stderr.startswith(b"headwater: There is no topic 'nowhere'")
    assert run("consume").returncode == 2


def test_a_reader_that_has_enough_is_no_fault(orders: Command) -> None:
    orders("produce", "orders", stdin=b"".join(b"%d\n" % number for number in range(50_000)))
    done = subprocess.run(
        ["bash", "-c", f"'{HEADWATER}' consume orders --group kitchen | head -n 3; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        env=in_environment(),
        timeout=60,
    )
    assert (done.stdout, done.stderr) == (b"0\n1\n2\n0\n", b"")
    committed = orders("groups", "describe", "--json").json[0]["offsets"]
    # Only what went out whole: at most what a pipe holds.
    assert not committed or committed[0]["committed"] < 50_000


def sleeps(pid: int) -> bool:
    """Whether a process waits for something, and has nothing left to do."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_reader_commits_what_it_printed(orders: Command, number: signal.Signals) -> None:
    orders("produce", "orders", stdin=b"0\n1\n2\n")
    with subprocess.Popen(
        [HEADWATER, "consume", "orders", "--follow", "--group", "kitchen"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=in_environment(),
    ) as process:
        assert process.stdout
        assert process.stderr
        assert [process.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
        # We may have read the lines before it could note that they are out; then they would only be read again.
        until(lambda: sleeps(process.pid))
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    (group,) = orders("groups", "describe", "--json").json
    assert (group["members"], group["offsets"][0]["committed"]) == ([], 3)


def test_an_interrupted_writer_has_sent_what_it_read(orders: Command) -> None:
    with subprocess.Popen(
        [HEADWATER, "produce", "orders"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=in_environment()
    ) as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(b"0\n1\n")
        process.stdin.flush()
        until(lambda: orders("consume", "orders").text == "0\n1\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def test_followers_see_what_comes(orders: Command) -> None:
    with subprocess.Popen(
        [HEADWATER, "consume", "orders", "--latest", "-n", "1"], stdout=subprocess.PIPE, env=in_environment()
    ) as process:
        assert process.stdout
        give_up = time.monotonic() + 60
        while process.poll() is None:
            # It does not say when it has begun: what came before then is not for it.
            orders("produce", "orders", stdin=b"new\n")
            assert time.monotonic() < give_up
        assert (process.stdout.read(), process.returncode) == (b"new\n", 0)


def in_terminal(*words: str) -> str:
    """Run the command with a terminal for everything, and say what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [HEADWATER, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=in_environment(TERM="xterm")
    )
    os.close(theirs)
    got = b""
    while True:
        try:
            data = os.read(ours, 10_000)
        except OSError:
            # A terminal without processes ends so.
            break
        if not data:
            break
        got += data
    os.close(ours)
    assert process.wait(60) == 0
    return got.decode()


def test_a_terminal_gets_no_control_characters(orders: Command) -> None:
    orders("produce", "orders", "--key-separator", ":", stdin=b"\x1b[2J:\xff\x07\xc2\x9bm\xc3\xa9\tx\n")
    assert in_terminal("consume", "orders", "--print-key").splitlines() == ["\\x1b[2J\t\\xff\\x07\\x9bmé\tx"]
    assert orders("consume", "orders").out == b"\xff\x07\xc2\x9bm\xc3\xa9\tx\n"


def test_progress_is_shown_on_a_terminal_only(orders: Command, folder: Path) -> None:
    (folder / "many.txt").write_bytes(b"x\n" * 3000)
    assert "many.txt" in in_terminal("produce", "orders", "many.txt")
    assert "3,000 records sent to orders" in in_terminal("produce", "orders", "many.txt")
    assert "Reading" in in_terminal("log", "verify")
    result = orders("produce", "orders", "many.txt")
    assert (result.out, result.err) == (b"", "")


def test_a_terminal_that_lacks_a_character_gets_an_escape(folder: Path) -> None:
    (folder / "shop.py").write_text(
        "from headwater import StreamsBuilder\ndef größe(key, value, context): ...\n"
        "b = StreamsBuilder()\nb.stream('x').to(größe)\ntopology = b.build()\n"
    )
    done = subprocess.run(
        [HEADWATER, "describe", "shop.py"],
        capture_output=True,
        env=in_environment(PYTHONIOENCODING="ascii"),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"extractor class: gr\\xf6\\xdfe" in done.stdout


# The package itself may import everything; what is asked here is what the command adds.
LEAN = """
import sys, types
package = types.ModuleType("headwater")
package.__path__ = [sys.argv.pop(1)]
sys.modules["headwater"] = package
from headwater.streams.cli import main
assert main(sys.argv[1:]) == 0
print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], {"msgspec", "headwater.state.log", "rich", "rocksdict", "headwater.dsl"}),
        (["topics", "list"], {"rich", "rocksdict", "headwater.dsl.stream", "headwater.dsl.serde"}),
        (["consume", "orders"], {"rich", "rocksdict", "headwater.dsl.stream", "headwater.dsl.serde"}),
    ],
)
def test_small_commands_import_little(orders: Command, words: list[str], absent: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAN, headwater.__path__[0], *words],
        capture_output=True,
        text=True,
        env=in_environment(),
    )
    assert done.returncode == 0, done.stderr
    imported = set(done.stderr.split())
    assert "argparse" in imported
    assert not imported & (absent | {"pyspark"})


HANGS = """
from headwater import StreamsBuilder

def hang(value):
    while value == "stop":
        pass
    return value

builder = StreamsBuilder()
builder.stream("in").map_values(hang, name="hanging").to("out")
topology = builder.build()
"""


def test_a_process_whose_step_hangs_ends_and_names_it(headwater: Command, folder: Path) -> None:
    headwater("topics", "create", "in")
    headwater("produce", "in", stdin=b'"stop"\n')
    path = folder / "hangs.py"
    path.write_text(HANGS)
    done = subprocess.run(
        [HEADWATER, "run", str(path), "--set", "task_timeout=1s"],
        capture_output=True,
        env=in_environment(),
        timeout=120,
    )
    assert done.returncode == 1
    assert b"step 'hanging' (hangs:4) on in-0@0, key None: it has not come back for 1 s" in done.stderr
    # Its task is free.
    path.write_text(HANGS.replace("while", "if"))
    with subprocess.Popen([HEADWATER, "run", str(path)], stderr=subprocess.PIPE, env=in_environment()) as process:
        until(lambda: headwater("consume", "out").text == '"stop"\n', 120)
        process.terminate()
        assert process.wait(120) == 0


def test_a_worker_of_several_whose_step_hangs_is_replaced(headwater: Command, folder: Path) -> None:
    headwater("topics", "create", "in")
    headwater("produce", "in", stdin=b'"stop"\n')
    path = folder / "hangs.py"
    path.write_text(HANGS)
    with subprocess.Popen(
        [HEADWATER, "run", str(path), "--workers", "2", "--set", "task_timeout=1s"],
        stderr=subprocess.PIPE,
        env=in_environment(),
    ) as process:
        assert process.stderr
        said = b""
        # Whatever goes wrong, the pipe ends.
        bound = threading.Timer(180, process.kill)
        bound.start()
        # Twice: the one that comes in its place hangs too, as the record is still there.
        while said.count(b"died (exit code 4); starting it again") < 2:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.terminate()
        process.stderr.read()
        assert process.wait(120) in (0, 1)
        bound.cancel()
    assert b"step 'hanging' (hangs:4) on in-0@0" in said


def test_an_exit_in_a_function_is_named_with_step_and_record(headwater: Command, folder: Path) -> None:
    headwater("topics", "create", "in")
    headwater("produce", "in", stdin=b'"stop"\n')
    path = folder / "leaves.py"
    path.write_text(HANGS.replace("        pass", "        raise SystemExit(7)"))
    done = subprocess.run([HEADWATER, "run", str(path)], capture_output=True, env=in_environment(), timeout=120)
    assert done.returncode == 1
    assert b"step 'hanging' (leaves:4) failed on in-0@0: SystemExit: 7" in done.stderr
