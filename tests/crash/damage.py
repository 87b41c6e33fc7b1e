"""Damage at rest: an application's log and state are spoiled while it is stopped, and it is started again. What it then
says and does is compared with what it does where nothing is spoiled.

A base is a directory as a stop or a kill leaves it. A kill is a copy of the directory at that moment, made inside of
the commit: the kernel keeps what a killed process has written, no more and no less.

What no start could notice is not among the damages: all of the log replaced by an older copy of all of it, which is a
restore, and input that nobody has read yet replaced by an older copy; nor is the deletion of an output topic, which is
what `headwater topics delete` does, too.
"""

import json
import logging
import shutil
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from headwater import Config, Json, Producer, StreamsBuilder, TimeWindows, Topology
from headwater.errors import StreamsError
from headwater.state.log import Log
from headwater.streams.app import App, State
from headwater.streams.run import open_app

PATIENCE = 120.0
ROUND = 12
ROUNDS = 3
OUTPUTS = ("counts", "windows")
STORES = ("seen", "counts", "windows")
# How often an application may start again by itself before that counts as endless.
RESTARTS = 3
POINTS = (("after-write", 3), ("after-append", 5), ("before-sync", 2), ("after-sync", 3))


def topology() -> Topology:
    """A store that nothing is put out of, then by shop a count and windows behind a repartition."""
    builder = StreamsBuilder(value=Json())
    orders = builder.stream("orders")
    orders.group_by_key().count(store="seen")
    by_shop = orders.select_key(lambda user, order: order["shop"]).repartition(name="by-shop")
    by_shop.group_by_key().count(store="counts").to_stream().to("counts", value=Json())
    (
        by_shop.group_by_key()
        .windowed_by(TimeWindows.of(timedelta(seconds=10), grace=timedelta(days=1)))
        .aggregate(lambda: 0, lambda shop, order, total: total * 31 % 9973 + order["number"], store="windows")
        .to_stream()
        .to("windows")
    )
    return builder.build()


def config(folder: Path) -> Config:
    return Config("shop", state_dir=folder, commit_interval=timedelta(0))


def broker(folder: Path) -> str:
    return f"log://{folder / 'log'}"


def produce(folder: Path, turn: int) -> None:
    """Send a round of orders, each in a batch of its own."""
    with Producer(broker(folder)) as producer:
        for number in range(turn * ROUND, (turn + 1) * ROUND):
            order = {"number": number, "shop": f"shop-{number % 3}"}
            producer.send("orders", key=f"user-{number % 5}", value=json.dumps(order), timestamp=1_000 + 700 * number)


def opened(folder: Path, **options: Any) -> App:
    return open_app(topology(), config(folder), broker(folder), at_once=3, **options)


def outcome(folder: Path, app: App) -> dict[str, Any]:
    """All results by key in their order, and the rows of all stores."""
    found: dict[str, Any] = {}
    with Log.open(folder / "log") as log:
        for topic in OUTPUTS:
            by_key = defaultdict(list)
            with log.partition(topic, 0) as partition:
                offset = partition.start
                while records := partition.read(offset):
                    for key, value, timestamp, _, _ in records:
                        by_key[key].append((value, timestamp))
                    offset = records[-1][4] + 1
            found[f"topic {topic}"] = dict(by_key)
    for name in STORES:
        found[f"store {name}"] = sorted(map(repr, app.store(name).all(timestamps=True)))
    return found


# Bases


def copy(source: Path, target: Path) -> None:
    """Copy a directory but for its sockets."""

    def sockets(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if stat.S_ISSOCK(Path(folder, name).lstat().st_mode)]

    shutil.copytree(source, target, ignore=sockets)


@dataclass
class Base:
    """A directory, earlier copies of it, and what comes of it undamaged: at once, and after another round."""

    name: str
    folder: Path
    earlier: list[Path]
    expected: dict[str, Any]
    expected_after: dict[str, Any]


def work(folder: Path, **options: Any) -> dict[str, Any]:
    with opened(folder, **options) as app:
        app.wait_idle(PATIENCE)
        return outcome(folder, app)


def bases(folder: Path) -> list[Base]:
    """Make them: stopped, killed while idle, killed within a commit, and stopped before the last round was read."""
    live = folder / "live"
    with Log.open(live / "log") as log:
        for topic in ("orders", "shop-by-shop-repartition", *OUTPUTS):
            # Small, so that there are closed ones.
            log.create_topic(topic, 1, segment_bytes=1_500, retention_ms=None)
    earlier: list[Path] = []
    made: list[tuple[str, Path]] = []

    def keep(name: str, known: bool = False) -> None:
        copy(live, folder / name)
        if known:
            earlier.append(folder / name)
        else:
            made.append((name, folder / name))

    for turn in range(ROUNDS - 1):
        produce(live, turn)
        work(live)
        keep(f"earlier-{turn}", known=True)
    produce(live, ROUNDS - 1)
    keep("behind")
    seen: Counter[str] = Counter()

    def at(point: str) -> None:
        seen[point] += 1
        if (point, seen[point]) in POINTS:
            keep(f"killed-{point}")

    with opened(live, at=at) as app:
        app.wait_idle(PATIENCE)
        keep("killed")
    keep("stopped")
    assert len(made) == 3 + len(POINTS), seen
    found = []
    for name, place in made:
        whole = folder / f"whole-{name}"
        copy(place, whole)
        first = work(whole)
        produce(whole, ROUNDS)
        second = work(whole)
        shutil.rmtree(whole)
        assert first != second
        found.append(Base(name, place, earlier, first, second))
    assert all((base.expected, base.expected_after) == (found[0].expected, found[0].expected_after) for base in found)
    return found


# Damages


@dataclass(frozen=True)
class Damage:
    """What is done to which path of a base."""

    what: str
    path: Path
    do: Callable[[Path], None]

    def __str__(self) -> str:
        return f"{self.what} {self.path}"


def kind(path: Path) -> str:
    """What a file is, so that each kind is met as often as another, however many there are."""
    name = path.name
    for prefix in ("MANIFEST", "OPTIONS", "LOG"):
        if name.startswith(prefix):
            return prefix
    where = "task" if "tasks" in path.parts else next((part for part in path.parts if part in ("topics", "groups")), "")
    return f"{where} {path.suffix or name}"


def random_damage(base: Base, rng: Random) -> Damage:
    """Choose one that changes something."""
    while True:
        if rng.random() < 0.1:
            found = _of_directory(base, rng)
        else:
            by_kind = defaultdict(list)
            for path in sorted(base.folder.rglob("*")):
                if path.is_file():
                    by_kind[kind(path.relative_to(base.folder))].append(path.relative_to(base.folder))
            found = _of_file(base, rng.choice(by_kind[rng.choice(sorted(by_kind))]), rng)
        if found is not None:
            return found


def _of_directory(base: Base, rng: Random) -> Damage | None:
    folders = [
        path.relative_to(base.folder)
        for pattern in ("log/topics/*", "log/topics/*/0", "apps", "apps/shop", "apps/shop/tasks/*", "log/groups/*")
        for path in sorted(base.folder.glob(pattern))
    ]
    path = rng.choice(folders)
    if rng.random() < 0.5:
        if path.name in OUTPUTS:
            return None
        return Damage("delete", path, shutil.rmtree)
    older = rng.choice(base.earlier) / path
    if not older.exists() or (base.name == "behind" and "orders" in path.parts):
        return None

    def put(target: Path) -> None:
        shutil.rmtree(target)
        copy(older, target)

    return Damage("older copy of", path, put)


def _of_file(base: Base, path: Path, rng: Random) -> Damage | None:
    good = (base.folder / path).read_bytes()
    what = rng.choice(["flip", "zero", "cut", "empty", "append", "delete", "older copy of"])
    bad = bytearray(good)
    if what == "delete":
        return Damage("delete", path, Path.unlink)
    if what == "older copy of":
        older = rng.choice(base.earlier) / path
        if not older.is_file():
            return None
        bad = bytearray(older.read_bytes())
    elif what == "append":
        bad += rng.choice([rng.randbytes(rng.randint(1, 200)), bytes(rng.randint(1, 200)), bytes(good[-100:])])
    elif good:
        at = rng.randrange(len(good))
        size = rng.choice([1, 8, 100])
        if what == "flip":
            bad[at] ^= 1 << rng.randrange(8)
        elif what == "zero":
            bad[at : at + size] = bytes(len(bad[at : at + size]))
        else:
            del bad[at if what == "cut" else 0 :]
    if bad == good:
        return None
    content = bytes(bad)
    return Damage(what, path, lambda target: target.write_bytes(content) and None)


# Trials


@contextmanager
def warnings() -> Iterator[list[str]]:
    """Collect what is warned of."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler = Handler(logging.WARNING)
    logger = logging.getLogger("headwater")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


@dataclass
class Attempt:
    """What a start came to: an outcome, or an error."""

    outcome: dict[str, Any] | None = None
    error: BaseException | None = None
    restarts: int = 0
    warned: list[str] = field(default_factory=list)

    def verdict(self, expected: dict[str, Any]) -> str:
        if self.restarts >= RESTARTS:
            return "endless"
        if self.error is not None:
            return "refused" if isinstance(self.error, StreamsError) and len(str(self.error)) > 40 else "unnamed"
        if self.outcome != expected:
            return "wrong"
        return "right, warned" if self.warned else "right"


def attempt(folder: Path) -> Attempt:
    """Start the application and let it do what there is to do."""
    made = Attempt()

    def on_state(new: State, old: State) -> None:
        if new == "restarting":
            made.restarts += 1
            if made.restarts >= RESTARTS:
                app.request_stop()

    app = opened(folder, on_state=on_state)
    with warnings() as made.warned:
        try:
            with app:
                app.wait_idle(PATIENCE)
                made.outcome = outcome(folder, app)
        except Exception as error:
            made.error = error
    return made


@dataclass
class Trial:
    """A damage and what the starts after it came to."""

    seed: int
    base: str
    damage: str
    verdicts: list[str]
    said: str

    @property
    def good(self) -> bool:
        return not {"wrong", "unnamed", "endless"} & set(self.verdicts) and "not cured" not in self.verdicts

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.base}, {self.damage}: {' > '.join(self.verdicts)}: {self.said}"


def trial(all_bases: list[Base], folder: Path, seed: int) -> Trial:
    """Spoil a copy of a base and start it: right answers are followed by more records, refusals by a second start, and
    by a third one after the file has been put back."""
    rng = Random(seed)
    base = rng.choice(all_bases)
    damage = random_damage(base, rng)
    place = folder / "trial"
    copy(base.folder, place)
    try:
        damage.do(place / damage.path)
        first = attempt(place)
        verdicts = [first.verdict(base.expected)]
        if verdicts[0].startswith("right"):
            produce(place, ROUNDS)
            verdicts.append(attempt(place).verdict(base.expected_after))
        elif verdicts[0] == "refused":
            verdicts.append(attempt(place).verdict(base.expected))
            if verdicts[1] == "refused":
                _put_back(base.folder / damage.path, place / damage.path)
                third = attempt(place)
                verdicts.append(third.verdict(base.expected))
                if verdicts[2] == "refused":
                    verdicts.append("not cured")
                    first.warned.append(str(third.error))
        said = "; ".join([*([f"{type(first.error).__name__}: {first.error}"] if first.error else []), *first.warned])
        return Trial(seed, base.name, str(damage), verdicts, said)
    finally:
        shutil.rmtree(place)


def _put_back(good: Path, target: Path) -> None:
    if good.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        copy(good, target)
    else:
        shutil.copy(good, target)
