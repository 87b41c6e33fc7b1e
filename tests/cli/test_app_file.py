"""`app.py[:name]` and `headwater describe`: which topology is meant, and what is said of a file that has none."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import StreamsError
from headwater.streams.cli.app_file import load_app
from tests.cli.conftest import Command

APP = """
from headwater import StreamsBuilder

def build(topic):
    builder = StreamsBuilder()
    builder.stream(topic).to("out")
    return builder.build()
"""


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports is forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, text: str, name: str = "shop.py") -> str:
    (folder / name).write_text(text)
    return name


def topics(path: str) -> set[str]:
    topology, _ = load_app(path)
    return {topic for source in topology.sources() for topic in source.topics}


def test_the_one_called_topology_or_the_only_one_or_the_one_named(folder: Path) -> None:
    two = write(folder, APP + "other = build('b')\ntopology = build('a')\n", "two.py")
    assert load_app(two)[1] == "two"
    assert topics(two) == {"a"}
    assert topics(f"{two}:other") == {"b"}
    assert topics(write(folder, APP + "shop = build('c')\nalias = shop\n", "one.py")) == {"c"}
    assert topics(str(folder / "one.py") + ":alias") == {"c"}


def test_it_may_import_what_lies_beside_it_or_in_the_current_directory(folder: Path) -> None:
    (folder / "apps").mkdir()
    write(folder / "apps", "TOPIC = 'beside'\n", "settings_beside.py")
    write(folder, "TOPIC = 'current'\n", "settings_current.py")
    for place in ("beside", "current"):
        text = f"from settings_{place} import TOPIC\n{APP}topology = build(TOPIC)\n"
        assert topics("apps/" + write(folder / "apps", text, f"{place}.py")) == {place}


def test_main_is_not_run_and_functions_can_be_found_again(folder: Path) -> None:
    text = APP + "import pickle\ntopology = build('a')\nif __name__ == '__main__':\n    raise SystemExit('run')\n"
    load_app(write(folder, text))
    assert pickle.loads(pickle.dumps(sys.modules["shop"].build)) is sys.modules["shop"].build


def test_a_file_may_have_a_name_that_is_taken(folder: Path) -> None:
    import queue

    assert load_app(write(folder, APP + "topology = build('a')\n", "queue.py"))[1] == "queue"
    assert sys.modules["queue"] is queue
    assert load_app(write(folder, APP + "topology = build('a')\n", "my-app.v2.py"))[1] == "my-app.v2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", r"shop\.py defines no topology: write `topology = builder\.build\(\)` at its end"),
        ("from headwater import StreamsBuilder\nb = StreamsBuilder()\n", r"write `topology = b\.build\(\)`"),
        (APP + "a = build('a')\nb = build('b')\n", r"several topologies: say which, shop\.py:NAME\. It defines a, b\."),
        ("x = 1\ny = x / 0\n", r"^shop\.py:2: ZeroDivisionError: division by zero \(run `python shop\.py`"),
        (APP + "topology = build(None)\n", r"^shop\.py:\d+: "),
        ("import json\n\njson.loads('{')\n", r"^shop\.py:3: JSONDecodeError: "),
        ("import nowhere\n", r"^shop\.py:1: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\nraise SystemExit(3)\n", r"^shop\.py:2: SystemExit: 3"),
        ("raise ValueError\n", r"^shop\.py:1: ValueError \(run"),
        ("x = 1\ndef f(:\n", r"shop\.py:2: SyntaxError: "),
        ("if True:\nx = 1\n", r"shop\.py:2: IndentationError: "),
    ],
)
def test_a_file_that_cannot_be_taken(headwater: Command, folder: Path, text: str, message: str) -> None:
    write(folder, text)
    with pytest.raises(StreamsError, match=message):
        load_app("shop.py")
    result = headwater("describe", "shop.py")
    assert (result.code, result.out) == (1, b"")
    assert result.err.startswith("headwater: ")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.py", r"There is no file none\.py \(looked in /"),
        ("none.py:topology", r"There is no file none\.py \("),
        (".", r"^\. is a directory"),
        ("shop.py:", "'' is no name"),
        ("shop.py:a b", "'a b' is no name"),
        ("shop.py:other", r"shop\.py defines no 'other'\. It defines topology\."),
        ("shop.py:build", r"'build' is a function and not a Topology\. It defines topology\."),
        ("shop.txt", r"shop\.txt is no Python file"),
    ],
)
def test_a_path_that_cannot_be_taken(folder: Path, path: str, message: str) -> None:
    write(folder, APP + "topology = build('a')\n")
    write(folder, APP, "shop.txt")
    with pytest.raises(StreamsError, match=message):
        load_app(path)


def test_a_file_that_raised_leaves_no_module(folder: Path) -> None:
    write(folder, "x = 1 / 0\n")
    with pytest.raises(StreamsError):
        load_app("shop.py")
    assert "shop" not in sys.modules


def test_describe_in_every_form(headwater: Command, folder: Path) -> None:
    write(folder, APP + "topology = build('orders')\n")
    topology, _ = load_app("shop.py")
    assert headwater("describe", "shop.py").text == topology.describe()
    assert headwater("describe", "shop.py:topology", "--mermaid").text == topology.to_mermaid()
    assert headwater("describe", "shop.py", "--dot").text == topology.to_dot()
    assert headwater("describe", "shop.py", "--json").json == {
        "app_id": "shop",
        "sources": ["orders"],
        "sinks": ["out"],
        "stores": [],
        "description": topology.describe(),
    }
