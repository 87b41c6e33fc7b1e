"""Functions that are slow, become slow, or never come back: commits and a stop do not wait for them, and a step that
hangs is named."""

import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from headwater import Config, StreamsBuilder, StreamsError, Topology
from headwater.streams.fleet import Fleet
from headwater.streams.http.server import listening
from headwater.streams.watch import TaskHung
from tests.streams.apps import Place, until
from tests.streams.asking import ask


def test_a_slow_function_is_committed_from_its_first_records_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.send(*["k"] * 400)
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: time.sleep(0.05) or value).to("out")
    with place.app(builder.build()):
        until(place.out, 120)
    # Not the first 250 in one go.
    assert 0 < len(place.out()) < 250


def test_a_function_that_becomes_slow_in_the_middle_of_a_slice_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.send(*["k"] * 9_000)
    done = 0
    slow = threading.Event()

    def work(value: str) -> str:
        nonlocal done
        done += 1
        if done > 4_000:
            slow.set()
            time.sleep(0.05)
        return value

    builder = StreamsBuilder()
    builder.stream("in").map_values(work).to("out")
    app = place.app(builder.build()).start()
    assert slow.wait(120)
    # Long enough for the watch to look; from then on a slice ends with its record.
    until(lambda: done > 4_020, 120)
    before = done
    app.stop(120)
    # Of some 5,000 that are left.
    assert done - before < 500
    assert len(place.out()) == done


def hang(value: str) -> str:
    if value == "stop":
        release.wait()
    return value


release = threading.Event()


def hanging() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(hang, name="hanging").to("out")
    return builder.build()


def test_a_step_that_hangs_is_named_and_makes_the_application_fail(tmp_path: Path) -> None:
    release.clear()
    place = Place(tmp_path)
    place.send("a", "b")
    app = place.app(hanging(), task_timeout=timedelta(seconds=2)).start()
    until(lambda: len(place.out()) == 2, 120)
    place.send("c", value="stop")
    with listening(app, "127.0.0.1:0", app_id="app") as url:
        until(lambda: app.state == "failed", 120)
        assert ask(url, "/healthz").status == 503
    at = f"{hang.__module__}:{hang.__code__.co_firstlineno}"
    with pytest.raises(TaskHung, match=rf"step 'hanging' \({at}\) on in-0@2, key b'c': .*task_timeout="):
        app.join()
    # It comes back after all: nothing of it is committed, and its task is free for another.
    release.set()
    app._thread.join(120)
    assert (app.state, [key for key, _ in place.out()]) == ("failed", [b"a", b"b"])
    with place.app(hanging()) as again:
        again.wait_idle()
    assert [key for key, _ in place.out()] == [b"a", b"b", b"c"]


def test_what_cannot_go_to_another_process_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    lock = threading.Lock()
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: (lock, value), name="locking").to("out")
    with pytest.raises(StreamsError, match=r"step 'locking' holds .* cannot pickle '_thread.lock'"):
        Fleet(builder.build(), Config("app"), place.broker, 2)
