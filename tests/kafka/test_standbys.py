"""Standbys: whoever takes over from a killed worker has its tasks' state or fetches it; both are counted and said."""

import logging
from pathlib import Path
from typing import Any

import pytest

from headwater.streams.app import App
from tests.kafka.broker import Broker
from tests.kafka.place import Place
from tests.kafka.service import Service
from tests.streams.apps import until

PARTITIONS = 6
KEYS = [f"key-{number}" for number in range(600)]
PATIENCE = 60.0


@pytest.fixture
def place(kafka: Broker, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path, PARTITIONS)


def settled(workers: list[dict[str, Any]], standbys: int) -> bool:
    """Whether all tasks are dealt out, and each is copied as often as wanted, up to its end."""
    tasks = sorted(task for worker in workers for task in worker["tasks"])
    copies = sorted(task for worker in workers for task in worker["standbys"])
    behind = any(lag for worker in workers for lag in worker["standbys"].values())
    even = all(len(worker["tasks"]) == PARTITIONS // len(workers) for worker in workers)
    return even and len(tasks) == PARTITIONS and copies == sorted(tasks * standbys) and not behind


def fill(place: Place, apps: list[App], service: Service, standbys: int) -> None:
    """Have all keys counted while all workers have their share, and all copies there."""

    def metrics() -> list[dict[str, Any]]:
        return [app.metrics() for app in apps] + [service.ask("metrics")]

    until(lambda: settled(metrics(), standbys), PATIENCE)
    place.send(KEYS)
    place.await_counts(dict.fromkeys(KEYS, 1))
    until(lambda: settled(metrics(), standbys), PATIENCE)


def takeover(place: Place, apps: list[App], service: Service) -> tuple[int, int, int]:
    """Kill a worker: how many of its tasks the others found a copy of, restored, and with how many records."""
    before = [app.metrics() for app in apps]
    moving = set(service.ask("metrics")["tasks"])
    service.kill()
    until(lambda: sum(len(app.metrics()["tasks"]) for app in apps) == PARTITIONS, PATIENCE)
    place.send(KEYS)
    place.await_counts(dict.fromkeys(KEYS, 2))
    after = [app.metrics() for app in apps]
    assert moving <= {task for metrics in after for task in metrics["tasks"]}
    return tuple(  # type: ignore[return-value]  # there are three
        sum(now[name] - then[name] for now, then in zip(after, before, strict=True))
        for name in ("standbys-met-total", "restores-total", "restored-records-total")
    )


def test_with_a_standby_nothing_is_restored_from_the_beginning(place: Place, tmp_path: Path) -> None:
    with place.app(standbys=1, state_dir=tmp_path / "one") as app:
        service = Service(place.plot, tmp_path / "log", standbys=1, state_dir=tmp_path / "two")
        fill(place, [app], service, 1)
        met, restores, restored = takeover(place, [app], service)
    assert met == PARTITIONS // 2
    # The copies had all of it; what they may have lacked is the last commit's.
    assert restores == 0, restored


def test_without_one_what_is_restored_is_counted_and_said(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with place.app(state_dir=tmp_path / "one") as app:
        service = Service(place.plot, tmp_path / "log", state_dir=tmp_path / "two")
        fill(place, [app], service, 0)
        caplog.set_level(logging.INFO, "headwater")
        met, restores, restored = takeover(place, [app], service)
    assert met == 0
    assert restores == PARTITIONS // 2
    assert restored >= len(KEYS) // 4
    assert caplog.text.count("records restored in") == PARTITIONS // 2


def test_of_three_workers_some_meet_a_standby_and_the_others_restore(place: Place, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    with place.app(standbys=1, state_dir=folders[0]) as one, place.app(standbys=1, state_dir=folders[1]) as two:
        service = Service(place.plot, tmp_path / "log", standbys=1, state_dir=folders[2])
        fill(place, [one, two], service, 1)
        met, restores, _ = takeover(place, [one, two], service)
    print(f"{met} of {PARTITIONS // 3} tasks of a killed worker met a standby, {restores} were restored")
    # Neither met nor restored is a task whose database has lain here since it was last copied, and lacks nothing.
    assert met + restores <= PARTITIONS // 3
