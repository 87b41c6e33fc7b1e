"""Questions over HTTP to workers on a real cluster, which find each other through their topic."""

import json
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headwater import Config, StreamsBuilder, Topology
from headwater.streams.app import App
from headwater.streams.http.client import RemoteApp
from headwater.streams.http.server import listening
from headwater.streams.kafka.connection import KafkaConnection
from headwater.streams.kafka.roster import TOUCH_SECONDS, Roster
from headwater.streams.kafka.slots import take_slot
from headwater.streams.queries import Query
from headwater.streams.worker import Clock, Worker
from tests.cli.conftest import Command
from tests.cli.conftest import broker as broker
from tests.cli.conftest import folder as folder
from tests.cli.conftest import headwater as headwater
from tests.kafka.broker import Broker
from tests.streams.apps import until
from tests.streams.asking import ADDRESS, ask, connected

KEYS = [f"k{number:02}" for number in range(24)]
PATIENCE = 60.0
SPAWN = multiprocessing.get_context("spawn")


def counting(app_id: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(f"{app_id}-words").group_by_key().count(store="counts")
    return builder.build()


class Service:
    """A worker in this process that answers over HTTP."""

    def __init__(self, bootstrap: str, config: Config, directory: Path, listen: bool = True) -> None:
        self.url: str | None = None
        self._connection: KafkaConnection | None = None
        topology = counting(config.app_id)

        def make(clock: Clock) -> Worker:
            slot = take_slot(directory)
            settings = {"bootstrap.servers": bootstrap}
            self._connection = KafkaConnection(settings, topology, config, slot, self.url)
            return Worker(topology, config, self._connection, slot.directory / "tasks", clock)

        @contextmanager
        def beside(app: App) -> Iterator[None]:
            if not listen:
                yield
                return
            with listening(app, ADDRESS, app_id=config.app_id, places=self._places) as url:
                self.url = url
                yield

        self.app = App(make, topology, beside=beside)

    def _places(self) -> Roster | None:
        return None if self._connection is None else self._connection.roster

    def tasks(self) -> list[str]:
        return self.app.look(lambda worker: sorted(worker.tasks))


@pytest.fixture
def config(kafka: Broker) -> Config:
    """An application with four partitions of input."""
    config = Config(f"app-{uuid.uuid4().hex[:8]}", standbys=1)
    kafka.create(f"{config.app_id}-words", 4)
    fill(kafka, config)
    return config


def fill(kafka: Broker, config: Config) -> None:
    """A record for each key."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(f"{config.app_id}-words", b'"x"', key, timestamp=1000)
    producer.flush()


@pytest.fixture
def start(kafka: Broker, config: Config, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    with ExitStack() as running:

        def make(**options: Any) -> Service:
            service = Service(kafka.bootstrap, config, tmp_path / "slots", **options)
            running.enter_context(service.app)
            return service

        yield make


def ready(services: list[Service]) -> bool:
    """Whether all tasks are dealt out evenly, done, and known to all; and each is copied somewhere."""
    if any(len(service.tasks()) != 4 // len(services) for service in services):
        return False
    for service in services:
        assert service.url is not None
        peers = ask(service.url, "/workers").json
        if sorted(task for peer in peers for task in peer["tasks"]) != ["0_0", "0_1", "0_2", "0_3"]:
            return False
        if len(services) > 1 and len({task for peer in peers for task in peer["standbys"]}) != 4:
            return False
        told = ask(service.url, "/metrics", json="1").json
        if told["lag"] or any(told["standbys"].values()):
            return False
    return True


def test_two_workers_answer_as_one(
    kafka: Broker, config: Config, start: Callable[..., Service], headwater: Command
) -> None:
    services = [start(), start()]
    urls = [str(service.url) for service in services]
    until(lambda: ready(services), PATIENCE)
    for service in services:
        service.app.wait_idle()
    app = RemoteApp(urls[:1])
    for key in KEYS:
        found = app.query(Query("counts", "get", key=key))
        assert ([row["value"] for row in found.rows], found.missing, found.stale) == ([1], [], {}), key
    statuses = [ask(url, "/stores/counts/get", key=json.dumps(key)).status for key in KEYS for url in urls]
    assert sorted(statuses) == [200] * len(KEYS) + [421] * len(KEYS)
    assert {ask(url, path).status for url in urls for path in ("/healthz", "/readyz")} == {200}

    # The command finds them through the cluster.
    address = f"kafka://{kafka.bootstrap}"
    found = headwater("query", config.app_id, "counts", "all", "--json", "--broker", address)
    assert ([row["key"] for row in found.json["rows"]], found.json["missing"]) == (KEYS, [])
    found = headwater("query", config.app_id, "counts", "get", "k07", "--bootstrap-server", kafka.bootstrap)
    assert found.lines[1].split()[:2] == ["k07", "1"]
    assert len(headwater("top", "--json", "--broker", address).json[config.app_id]) == 2
    assert "0_3" in headwater("top", config.app_id, "--once", "--url", urls[0]).text

    # A copy says how far it is behind, and only when it is asked.
    theirs = services[1].tasks()[0]
    fresh = ask(urls[0], "/stores/counts/all", tasks=theirs).json
    assert (fresh["rows"], fresh["missing"]) == ([], [theirs])
    stale = ask(urls[0], "/stores/counts/all", tasks=theirs, stale="ok")
    assert (stale.json["stale"], stale.headers["Headwater-Lag"]) == ({theirs: 0}, "0")
    assert stale.json["rows"] == ask(urls[1], "/stores/counts/all", tasks=theirs).json["rows"]
    text = ask(urls[0], "/metrics").body.decode()
    assert f'headwater_standby_lag_records{{app="{config.app_id}",task="{theirs}"}} 0\n' in text
    assert f'headwater_workers{{app="{config.app_id}"}} 2\n' in text

    # One leaves: the other has all of it, or says that it is on its way.
    services[1].app.stop()
    until(lambda: len(services[0].tasks()) == 4, PATIENCE)
    until(lambda: not app.query(Query("counts", "all")).missing, PATIENCE)
    assert [row["key"] for row in app.query(Query("counts", "all")).rows] == KEYS


def test_workers_that_answer_nobody(
    kafka: Broker, config: Config, start: Callable[..., Service], headwater: Command
) -> None:
    address = f"kafka://{kafka.bootstrap}"
    found = headwater("query", config.app_id, "--broker", address)
    assert (found.code, found.text) == (1, "")
    assert f"No worker of '{config.app_id}' is running" in found.err
    service = start(listen=False)
    until(lambda: "none that answers" in headwater("query", config.app_id, "--broker", address).err, PATIENCE)
    assert "start them with --listen" in headwater("top", config.app_id, "--broker", address).err
    service.app.stop()
    until(lambda: "No worker of" in headwater("top", config.app_id, "--broker", address).err, PATIENCE)


def serve(bootstrap: str, config: Config, directory: Path, told: Connection) -> None:
    service = Service(bootstrap, config, directory)
    with service.app as app:
        told.send(service.url)
        app.join()


@pytest.fixture
def process(kafka: Broker, config: Config, tmp_path: Path) -> Iterator[tuple[BaseProcess, str]]:
    """A worker in a process of its own, and where it answers."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    started = SPAWN.Process(target=serve, args=(kafka.bootstrap, config, tmp_path / "slots", theirs), daemon=True)
    started.start()
    assert ours.poll(PATIENCE)
    yield started, ours.recv()
    started.kill()
    started.join()


def test_a_worker_that_was_stopped_does_not_tell_what_it_knew(
    kafka: Broker, config: Config, start: Callable[..., Service], process: tuple[BaseProcess, str]
) -> None:
    stopped, url = process
    assert stopped.pid is not None
    until(lambda: ask(url, "/stores/counts/all").json.get("rows"), PATIENCE)
    until(lambda: all(row["value"] == 1 for row in ask(url, "/stores/counts/all").json["rows"]), PATIENCE)
    os.kill(stopped.pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    took_over = start()
    fresh = RemoteApp([str(took_over.url)])
    until(lambda: len(took_over.tasks()) == 4, PATIENCE)
    fill(kafka, config)
    until(lambda: [row["value"] for row in fresh.query(Query("counts", "all")).rows] == [2] * len(KEYS), PATIENCE)
    # Longer than its last word counts.
    time.sleep(max(0.0, stopped_at + TOUCH_SECONDS - time.monotonic()))
    with connected(url) as line:
        # Asked while it is still stopped: it answers this first of all.
        line.sendall(b"GET /stores/counts/get?key=%22k00%22 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        os.kill(stopped.pid, signal.SIGCONT)
        with line.makefile("rb") as told_first:
            statuses = {int(told_first.readline().split()[1])}
    ends, gives_up = time.monotonic() + 3, time.monotonic() + PATIENCE
    while time.monotonic() < ends or not (statuses & {200, 421} or time.monotonic() > gives_up):
        for key in KEYS[:4]:
            answer = ask(url, "/stores/counts/get", key=json.dumps(key))
            statuses.add(answer.status)
            assert answer.status != 200 or [row["value"] for row in answer.json["rows"]] == [2]
        told = ask(url, "/stores/counts/all").json
        assert all(row["value"] == 2 for row in told.get("rows", []))
    # It says where the rows are now, or has got some of them back.
    assert 503 in statuses
    assert statuses & {200, 421}
