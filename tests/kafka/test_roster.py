"""Workers that know of each other through a topic of a real broker, and where the copies of tasks belong."""

import logging
import multiprocessing
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.kafka import roster as roster_module
from headwater.streams.kafka.roster import INTERVAL, TOPIC_SETTINGS, Announcement, Roster, standbys_of, workers_topic
from tests.kafka.broker import PATIENCE, Broker
from tests.kafka.reading import records

SPAWN = multiprocessing.get_context("spawn")
# A worker that is silent for so long is dead, where that matters; and how often one speaks then.
LIVE, OFTEN = 6.0, 0.2


@pytest.fixture
def app(kafka: Broker) -> str:
    """An application whose workers' topic is there."""
    app = f"app-{uuid.uuid4().hex}"
    kafka.create(workers_topic(app), **{name.replace(".", "_"): value for name, value in TOPIC_SETTINGS.items()})
    return app


@pytest.fixture
def roster(kafka: Broker, app: str) -> Iterator[Callable[..., Roster]]:
    """Rosters of the application's workers; they close with the test."""
    made: list[Roster] = []

    def make(worker: str = "", live_seconds: float = 10 * PATIENCE) -> Roster:
        made.append(Roster({"bootstrap.servers": kafka.bootstrap}, app, worker, live_seconds=live_seconds))
        return made[-1]

    yield make
    for one in made:
        one.close()


def until(true: Callable[[], object], *rosters: Roster, within: float = PATIENCE) -> float:
    """Poll until it is so; how long that took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < within, "it has not come about"
        for roster in rosters:
            roster.poll()
        time.sleep(0.02)
    return time.monotonic() - began


def announce_for_ever(settings: dict[str, Any], app: str, worker: str) -> None:
    roster_module.INTERVAL = OFTEN
    roster = Roster(settings, app, worker, live_seconds=LIVE)
    while True:
        roster.announce(Announcement(worker, tasks=("0_0",)))
        roster.poll()
        time.sleep(0.05)


def test_workers_hear_of_each_other(roster: Callable[..., Roster]) -> None:
    ann, bob = roster("ann"), roster("bob")
    first = Announcement("ann", "http://127.0.0.1:1", ("0_0", "0_1"), {"0_2": 7}, "abc", "host", 42)
    ann.announce(first)
    bob.announce(Announcement("bob", tasks=("0_2",)))
    until(lambda: len(bob.live()) == 2 and len(ann.live()) == 2, ann, bob)
    heard = bob.live()["ann"]
    assert (heard.life != "", msgspec.structs.replace(heard, life="")) == (True, first)
    assert bob.live() == ann.live()
    assert list(bob.live()) == ["ann", "bob"]


def test_news_is_told_at_once_and_the_rest_in_its_time(kafka: Broker, app: str, roster: Callable[..., Roster]) -> None:
    ann, bob = roster("ann"), roster("bob")
    ann.announce(Announcement("ann", standbys={"0_0": 100}))
    for lag in range(50):
        # Nothing new but the lag: too soon for another word.
        ann.announce(Announcement("ann", standbys={"0_0": lag}))
    said_at = time.monotonic()
    ann.announce(Announcement("ann", standbys={"0_0": 50}, tasks=("0_1",)))
    until(lambda: "ann" in bob.live() and bob.live()["ann"].tasks, ann, bob)
    assert bob.live()["ann"].sequence == 1
    assert bob.live()["ann"].standbys == {"0_0": 50}

    def again() -> bool:
        ann.announce(Announcement("ann", standbys={"0_0": 0}, tasks=("0_1",)))
        return ann.live()["ann"].sequence == 2

    until(again, ann, bob)
    assert time.monotonic() - said_at >= INTERVAL
    until(lambda: bob.live()["ann"].sequence == 2, ann, bob)
    assert bob.live()["ann"].standbys == {"0_0": 0}
    assert len(records(kafka, workers_topic(app))) == 3


def test_a_worker_that_is_killed_is_forgotten_in_a_while(
    kafka: Broker, app: str, roster: Callable[..., Roster]
) -> None:
    watcher = roster(live_seconds=LIVE)
    process = SPAWN.Process(
        target=announce_for_ever, args=({"bootstrap.servers": kafka.bootstrap}, app, "ann"), daemon=True
    )
    process.start()
    until(lambda: "ann" in watcher.live(), watcher)
    lasting = time.monotonic() + LIVE + 1
    # It goes on to be heard, longer than one word lasts.
    while time.monotonic() < lasting:
        watcher.poll()
        assert "ann" in watcher.live()
        time.sleep(0.05)
    process.kill()
    process.join()
    assert until(lambda: "ann" not in watcher.live(), watcher) < LIVE + 15
    # Its last word is still there, but is too old for one who comes now.
    late = roster(live_seconds=LIVE)
    until(lambda: late.known, late)
    assert late.live() == {}


def test_a_worker_that_leaves_is_forgotten_at_once(kafka: Broker, app: str, roster: Callable[..., Roster]) -> None:
    ann, bob = roster("ann"), roster("bob")
    ann.announce(Announcement("ann"))
    bob.announce(Announcement("bob"))
    until(lambda: len(bob.live()) == 2, ann, bob)
    ann.leave()
    assert "ann" not in ann.live()
    until(lambda: list(bob.live()) == ["bob"], bob)
    last = records(kafka, workers_topic(app))[-1]
    assert (last.key(), last.value()) == (b"ann", None)
    late = roster()
    until(lambda: late.known, late)
    assert list(late.live()) == ["bob"]


def test_all_agree_on_whose_a_task_is(roster: Callable[..., Roster]) -> None:
    ann, bob, cid = roster("ann"), roster("bob"), roster()
    all_of_them = ann, bob, cid
    ann.announce(Announcement("ann", tasks=("0_0", "0_1")))
    alone = {"0_0": "ann", "0_1": "ann"}
    until(lambda: all(one.owners() == alone for one in all_of_them), *all_of_them)
    # Taken over, while the one that had it has not noticed yet: whoever began later has it, for all.
    bob.announce(Announcement("bob", tasks=("0_1",)))
    ann.announce(Announcement("ann", tasks=("0_0", "0_1"), standbys={"0_2": 0}))
    moved = {"0_0": "ann", "0_1": "bob"}
    until(lambda: all("0_2" in one.live()["ann"].standbys for one in (bob, cid)), *all_of_them)
    until(lambda: all(one.owners() == moved for one in all_of_them), *all_of_them)
    # And back again.
    ann.announce(Announcement("ann", tasks=("0_0",)))
    ann.announce(Announcement("ann", tasks=("0_0", "0_1")))
    until(lambda: all(one.owners() == alone for one in all_of_them), *all_of_them)


def test_what_a_worker_ran_in_an_earlier_life_it_runs_no_more(roster: Callable[..., Roster]) -> None:
    first, bob, cid = roster("ann"), roster("bob"), roster()
    first.announce(Announcement("ann", tasks=("0_0",)))
    until(lambda: cid.owners() == {"0_0": "ann"}, cid)
    bob.announce(Announcement("bob", tasks=("0_0",)))
    until(lambda: cid.owners() == {"0_0": "bob"}, cid)
    # It comes back under its name, without a word of what it left, and gets the task again.
    second = roster("ann")
    until(lambda: second.known, second)
    assert not second.in_touch()
    assert second.owners() == {"0_0": "bob"}
    second.announce(Announcement("ann", tasks=("0_0",)))
    until(lambda: second.owners() == {"0_0": "ann"}, second)
    assert second.in_touch()
    until(lambda: cid.owners() == {"0_0": "ann"}, cid)


def test_a_worker_that_does_not_read_its_own_words_is_out_of_touch(roster: Callable[..., Roster]) -> None:
    ann = roster("ann", live_seconds=2)
    news = count()

    def touches() -> bool:
        # More than once: a word that is long on its way counts for nothing.
        ann.announce(Announcement("ann", pid=next(news)))
        return ann.in_touch()

    assert not ann.in_touch()
    until(touches, ann)
    # It was stopped: what it has heard before says nothing any more, even if it reads it only now.
    ann.announce(Announcement("ann", tasks=("0_0",)))
    time.sleep(2.1)
    assert not ann.in_touch()
    ann.poll()
    assert not ann.in_touch()
    until(touches, ann)
    ann.leave()
    assert not ann.in_touch()


def test_a_newcomer_knows_the_others_when_it_has_read_all(roster: Callable[..., Roster]) -> None:
    ann = roster("ann")
    for task in range(300):
        ann.announce(Announcement("ann", tasks=(f"0_{task}",)))
    until(lambda: ann.owners() == {"0_299": "ann"}, ann)
    bob = roster("bob")
    assert not bob.known
    until(lambda: bob.known, bob)
    assert bob.live()["ann"].tasks == ("0_299",)


def test_what_cannot_be_read_is_passed_over(
    kafka: Broker, app: str, roster: Callable[..., Roster], caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(workers_topic(app), b"?", b"odd")
    producer.produce(workers_topic(app), b'{"worker": "new", "from": "a later version"}', b"new")
    producer.flush()
    watcher = roster()
    with caplog.at_level(logging.WARNING, logger="headwater"):
        until(lambda: watcher.known, watcher)
    assert list(watcher.live()) == ["new"]
    assert "worker 'odd' says what cannot be read" in caplog.text


def test_a_topic_that_is_missing_is_said_once(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    ann = Roster({"bootstrap.servers": kafka.bootstrap}, "nowhere", "ann", live_seconds=1)
    news = count()

    def said() -> list[str]:
        ann.announce(Announcement("ann", pid=next(news)))
        return [r.getMessage() for r in caplog.records if "others do not see this worker" in r.getMessage()]

    with caplog.at_level(logging.WARNING, logger="headwater"):
        until(said, ann)
        ends = time.monotonic() + 2
        until(lambda: said() and time.monotonic() > ends, ann)
    (only,) = said()
    assert "topic 'nowhere-workers'" in only
    # Its own word it knows without the topic.
    assert list(ann.live()) == ["ann"]
    ann.close()


# ---- copies ------------------------------------------------------------------------------------------------------

NAMES = st.lists(st.uuids().map(str), min_size=1, max_size=12, unique=True)


@given(NAMES, st.integers(0, 4), st.data())
def test_a_copy_is_never_at_its_owner_and_all_compute_the_same(
    names: list[str], wanted: int, data: st.DataObject
) -> None:
    owner = data.draw(st.sampled_from([None, *names]))
    found = standbys_of("0_0", owner, names, wanted)
    assert len(found) == min(wanted, len([name for name in names if name != owner]))
    assert len(set(found)) == len(found)
    assert owner not in found
    assert standbys_of("0_0", owner, data.draw(st.permutations(names)), wanted) == found


@given(NAMES, st.integers(1, 3), st.data())
def test_a_worker_that_comes_or_goes_moves_only_its_own_share(
    names: list[str], wanted: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(names))
    rest = [name for name in names if name != gone]
    for task in range(20):
        before = standbys_of(f"1_{task}", None, names, wanted)
        after = standbys_of(f"1_{task}", None, rest, wanted)
        if gone not in before:
            assert after == before
        else:
            # The others stay, in their order, and the next in line joins.
            assert after[: len(before) - 1] == [name for name in before if name != gone]


def test_copies_are_spread_evenly() -> None:
    workers = [f"worker-{number}" for number in range(5)]
    shares = Counter(standbys_of(f"0_{task}", None, workers, 1)[0] for task in range(1000))
    assert all(140 < share < 260 for share in shares.values()), shares
