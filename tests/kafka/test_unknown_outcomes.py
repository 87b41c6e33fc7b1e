"""Transactions whose requests get lost or come late: connections to the coordinator are cut in the middle of a commit,
and what was on its way arrives when the next transaction is open. Nothing is lost, doubled or torn."""

import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from headwater.streams.connection import Undone
from tests.kafka.broker import PATIENCE
from tests.kafka.place import Place
from tests.kafka.proxy import (
    LOSE,
    LOSE_ANSWER,
    PASS,
    TRANSACTIONAL,
    ProxiedBroker,
    Proxy,
    pass_all,
    proxied,
)
from tests.kafka.reading import values
from tests.kafka.test_transactions import held, seated, until
from tests.kafka.workers import PointedWriter


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedBroker]:
    broker = ProxiedBroker(tmp_path_factory.mktemp("proxied"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def one_proxy(broker: ProxiedBroker) -> Iterator[Proxy]:
    with proxied(broker) as proxy:
        yield proxy


@pytest.fixture
def proxy(one_proxy: Proxy) -> Iterator[Proxy]:
    yield one_proxy
    one_proxy.rule = pass_all


class Cut:
    """Does something with the first request of a kind, and holds its bytes back."""

    def __init__(self, api: int, how: str) -> None:
        self.api, self.how = api, how
        self.frame = b""

    def __call__(self, api: int, frame: bytes) -> str:
        if api != self.api or self.frame:
            return PASS
        self.frame = frame
        return self.how


@pytest.mark.parametrize("given_up", [False, True], ids=["committed", "given-up"])
@pytest.mark.parametrize("how", [LOSE, LOSE_ANSWER])
@pytest.mark.parametrize("api", TRANSACTIONAL, ids=["add-partitions", "add-offsets", "end", "offsets"])
def test_a_request_that_arrives_in_the_next_transaction_does_not_tear_it(
    broker: ProxiedBroker, proxy: Proxy, api: int, how: str, given_up: bool
) -> None:
    name = uuid.uuid4().hex
    topic = broker.create(name)
    cut = Cut(api, how)
    late: list[bytes] = []
    # The transaction after the one that was cut: what was on its way arrives in it.
    armed = False

    def arrive(point: str) -> None:
        if point == "after-records" and armed and not late:
            late.append(proxy.send(cut.frame))
            if given_up:
                raise Undone("something else has failed")

    writer = PointedWriter({"bootstrap.servers": broker.proxied}, name, arrive)
    done: list[bytes] = []
    with seated(broker, name, topic) as seat:
        until(held(seat, 1))

        def committed() -> int:
            """What whoever opens the task finds: the next producer begins first."""
            writer.open()
            at: int = until(lambda: seat.committed([(topic, 0)]))[topic, 0][0]
            return at

        for number in range(4):
            value, after = b"%d" % number, 10 + number
            try:
                writer.write([(topic, 0, b"k", value, 1, ())], [TopicPartition(topic, 0, after)], seat)
            except Undone:
                pass
            else:
                assert committed() == after
            if committed() == after:
                done.append(value)
            armed = bool(cut.frame)
            proxy.rule = cut
        assert late, "nothing came late"
        assert values(broker, topic) == done
        assert done[-1] == b"3"


class Weather:
    """Delays some requests, cuts the connections of others, and lets what was cut off arrive later, by a seed."""

    def __init__(self, proxy: Proxy, seed: int) -> None:
        self._proxy = proxy
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.cut: dict[int, int] = defaultdict(int)

    def __call__(self, api: int, frame: bytes) -> str:
        with self._lock:
            chance, pause = self._rng.random(), self._rng.uniform(0.0, 0.3)
        if api not in TRANSACTIONAL or chance > 0.35:
            return PASS
        if chance > 0.15:
            time.sleep(pause)
            return PASS
        with self._lock:
            self.cut[api] += 1
            self._threads.append(threading.Thread(target=self._arrive, args=(3 * pause, frame)))
            self._threads[-1].start()
        return LOSE if chance > 0.07 else LOSE_ANSWER

    def _arrive(self, pause: float, frame: bytes) -> None:
        time.sleep(pause)
        self._proxy.send(frame)

    def end(self) -> None:
        """Nothing is under way any more."""
        self._proxy.rule = pass_all
        for thread in self._threads:
            thread.join(PATIENCE)


def test_an_application_whose_commits_are_delayed_cut_and_repeated_loses_and_doubles_nothing(
    broker: ProxiedBroker, proxy: Proxy, tmp_path: Path
) -> None:
    place = Place(broker, tmp_path, 2)
    object.__setattr__(place, "address", f"kafka://{broker.proxied}")
    keys = [f"key-{number}" for number in range(12)]
    weather = Weather(proxy, seed=7)
    sent = 0
    with place.app() as app:
        place.send(keys)
        sent += 1
        until(lambda: len(place.out()) == len(keys))
        proxy.rule = weather
        deadline = time.monotonic() + 3 * PATIENCE
        while len(weather.cut) < len(TRANSACTIONAL) or sum(weather.cut.values()) < 12:
            assert time.monotonic() < deadline, weather.cut
            place.send(keys)
            sent += 1
            time.sleep(0.1)
        weather.end()
        place.await_counts(dict.fromkeys(keys, sent), PATIENCE)
        app.wait_idle(PATIENCE)
        assert {key: app.store("counts").get(key) for key in keys} == dict.fromkeys(keys, sent)
