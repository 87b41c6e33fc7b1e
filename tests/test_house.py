"""The rules of the house: who may import whom, what the wheel contains, what the lock file says."""

import ast
import os
import pickle
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import TopologyError

ROOT = Path(__file__).parent.parent
FOLDERS = ("dsl", "streams", "state")
MAY_IMPORT = {
    "errors": set(),
    "dsl": {"dsl", "errors"},
    "state": {"state", "errors"},
    "streams": {"dsl", "streams", "state", "errors"},
}
# Who may use a library that not everyone has: a folder, or files whose names begin so.
OWNERS = {
    "pyspark": ("streams/spark", "tests/spark", "benchmarks/spark"),
    "faust": ("streams/faust", "tests/faust"),
    "confluent_kafka": (
        *("streams/kafka", "streams/spark/kafka", "tests/kafka", "tests/spark"),
        *("benchmarks/restore", "benchmarks/spark"),
    ),
}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of all that is imported, wherever it stands; a relative name keeps its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module == "headwater":
                yield from ((node.lineno, f"headwater.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def faults(file: str, source: str) -> list[str]:
    """Say which imports of a file break a rule; `file` is its path from the root."""
    place = file.removeprefix("headwater/").split("/")[0].removesuffix(".py")
    found = []
    for line, name in imported(ast.parse(source)):
        first, *rest = name.split(".")
        if name.startswith("."):
            found.append(f"{file}:{line}: relative import of {name}")
        elif first in FOLDERS:
            found.append(f"{file}:{line}: imports {name}, which users do not have: write headwater.{name}")
        elif first == "headwater" and place in MAY_IMPORT and (rest or [""])[0] not in MAY_IMPORT[place]:
            found.append(f"{file}:{line}: {place} may not import {name}")
        elif first in OWNERS and not re.match(rf"({'|'.join(OWNERS[first])})(\.py$|/|_)", file):
            found.append(f"{file}:{line}: {first} belongs to {OWNERS[first][0]}")
    return found


def test_every_file_imports_only_what_it_may() -> None:
    files = [
        file
        for folder in ("headwater", *FOLDERS, "examples", "benchmarks", "tests")
        for file in (ROOT / folder).rglob("*.py")
        if not any(part.is_symlink() for part in file.parents)
    ]
    assert len(files) > len(FOLDERS)
    assert [fault for file in files for fault in faults(file.relative_to(ROOT).as_posix(), file.read_text())] == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("dsl/ops.py", "from headwater.streams.plan import plan"),
        ("dsl/ops.py", "from headwater import state"),
        ("dsl/ops.py", "from headwater import KStream"),
        ("dsl/ops.py", "import headwater"),
        ("dsl/ops.py", "def late():\n    import headwater.state.rocks"),
        ("dsl/ops.py", "from .serde import Str"),
        ("dsl/ops.py", "from dsl.serde import Str"),
        ("state/rocks.py", "from headwater.dsl.serde import Str"),
        ("streams/task.py", "from headwater import TopologyTestDriver"),
        ("streams/task.py", "import pyspark.sql"),
        ("streams/kafka.py", "from faust import App"),
        ("headwater/errors.py", "from headwater.dsl.ops import Filter"),
        ("headwater/__init__.py", "import confluent_kafka"),
        ("tests/test_x.py", "import state"),
    ],
)
def test_a_forbidden_import_is_found(file: str, source: str) -> None:
    assert len(faults(file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("dsl/ops.py", "from headwater.errors import TopologyError\nimport headwater.dsl.serde\nimport msgspec"),
        ("dsl/ops.py", "from headwater import errors"),
        ("streams/task.py", "from headwater.state.rocks import Rocks\nfrom headwater.dsl import ops"),
        ("streams/spark/stages.py", "import pyspark.sql"),
        ("streams/kafka.py", "import confluent_kafka"),
        ("headwater/__init__.py", "from headwater.streams.driver import TopologyTestDriver"),
        ("tests/test_x.py", "from headwater import KStream"),
    ],
)
def test_an_allowed_import_is_not_found(file: str, source: str) -> None:
    assert faults(file, source) == []


def test_setuptools_knows_every_package() -> None:
    tool = project()["tool"]["setuptools"]
    folders = {
        Path(folder).relative_to(ROOT).as_posix().replace("/", ".")
        for folder, _, names in os.walk(ROOT / "headwater", followlinks=True)
        if any(name.endswith(".py") for name in names)
    }
    assert set(tool["packages"]) == folders
    assert tool["package-dir"] == {f"headwater.{folder}": folder for folder in FOLDERS}
    for folder in FOLDERS:
        # Relative, or the links break in every other checkout.
        assert os.readlink(ROOT / "headwater" / folder) == f"../{folder}"


def test_the_lock_pins_all_that_tests_need_and_names_no_place() -> None:
    pins = (ROOT / "requirements.lock").read_text().splitlines()
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; [^/]+)?", pin)] == []
    meta = project()["project"]
    extras = meta["optional-dependencies"]
    asked = [*meta["dependencies"], *extras["dev"], *extras["kafka"], *extras["spark"]]
    wanted = {re.split(r"[<>=]", want)[0] for want in asked}
    assert wanted <= {pin.split("==")[0] for pin in pins}


def test_a_topology_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(TopologyError(["one", "two"])))
    assert error.faults == ("one", "two")
    assert str(error) == "The topology has 2 faults:\n  1. one\n  2. two"
