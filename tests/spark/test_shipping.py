"""What is sent to executors: which modules a topology needs, and the zip files they travel in."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle
import msgspec
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater import StreamsBuilder, StreamsError
from headwater.streams.spark import shipping
from headwater.streams.spark.shipping import check_executors, ship

PACKAGE = Path(headwater.__file__).parent
FILES = {
    "revenue_app.py": "import shop.rates\nimport loose\n\ndef f(key, value):\n    return shop.rates.g(value)\n",
    "loose.py": "import rich.table\ntry:\n    import hypothesis\nexcept ImportError:\n    pass\ndef twice(x): ...\n",
    "shop/__init__.py": "",
    "shop/rates.py": "from . import codes\n\ndef g(value):\n    from folder.lazily import h\n    return h(value)\n",
    "shop/codes.py": "import orjson\n",
    "shop/codes.txt": "data",
    "shop/web.py": "import no_such_web_framework\n",
    "folder/lazily.py": "import pytest\n\ndef h(value):\n    return value\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An application with modules, a package and a folder of its own; gives its module."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import revenue_app

    yield revenue_app
    for name in ("revenue_app", "loose", "shop", "shop.rates", "shop.codes"):
        del sys.modules[name]


def topology(function: object) -> headwater.Topology:
    builder = StreamsBuilder()
    builder.stream("in").map(function).to("out")
    return builder.build()


def test_a_topology_needs_the_modules_of_its_functions_and_what_they_import(project: ModuleType) -> None:
    local, installed = shipping._closure(shipping._modules(topology(project.f)))
    assert sorted(local) == ["folder.lazily", "loose", "revenue_app", "shop", "shop.codes", "shop.rates"]
    # What is imported at once; not what may be missing, and not what a function imports when it is called.
    assert installed == {"rich", "orjson"}
    assert sorted(dict(shipping._application_files(local))) == [
        *("folder/__init__.py", "folder/lazily.py", "loose.py", "revenue_app.py"),
        *("shop/__init__.py", "shop/codes.py", "shop/codes.txt", "shop/rates.py"),
    ]
    assert "revenue_app" in shipping._modules(project)
    # A function that travels as it is: it is in no module that executors could import.
    text = "lambda key, value: revenue_app.f(key, loose.twice(value))"
    alone = eval(text, {"revenue_app": project, "loose": sys.modules["loose"], "__name__": "__main__"})
    assert {"revenue_app", "loose"} <= shipping._modules(topology(alone))


def test_a_struct_that_would_lose_its_fields_is_refused(project: ModuleType) -> None:
    class Order(msgspec.Struct):
        amount: float

    with pytest.raises(StreamsError, match=r"Order is a msgspec\.Struct that executors cannot import: define it in"):
        ship(None, topology(lambda key, value: (key, Order(value))))  # type: ignore[arg-type]
    # Why: it comes out of a pickle without its field.
    there = subprocess.run(
        [sys.executable, "-c", "import pickle, sys; print(pickle.load(sys.stdin.buffer).__struct_fields__)"],
        input=cloudpickle.dumps(Order),
        capture_output=True,
    )
    assert there.stdout == b"()\n"


def test_the_zip_has_the_whole_package_and_runs_alone(tmp_path: Path) -> None:
    contents = dict(shipping._package_files(PACKAGE))
    there = {
        f"headwater/{(Path(folder) / name).relative_to(PACKAGE).as_posix()}"
        for folder, _, names in os.walk(PACKAGE, followlinks=True)
        for name in names
        if "__pycache__" not in folder
    }
    assert there - set(contents) == set()
    assert {"headwater/dsl/ops.py", "headwater/state/log/batch.py", "headwater/streams/task.py"} <= set(contents)
    for name in ("one.zip", "two.zip"):
        shipping._write_zip(tmp_path / name, contents)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert "headwater/streams/task.pyc" in archive.namelist()
    script = "import headwater, headwater.streams.task as task; print(task.__file__, headwater.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(tmp_path / "one.zip")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    # The compiled one was taken: nothing had to be compiled there.
    assert done.stdout.split() == [f"{tmp_path}/one.zip/headwater/streams/task.pyc", headwater.__version__], done.stderr


def test_the_dependencies_are_those_of_the_package() -> None:
    imported = {
        name.partition(".")[0]
        for folder, _, files in os.walk(PACKAGE, followlinks=True)
        for file in files
        if file.endswith(".py")
        for name, at_once in shipping._imports(Path(folder, file), "headwater")
        if at_once
    }
    installed = imported - set(sys.stdlib_module_names) - {"headwater"}
    assert installed | {"google.protobuf"} == {*shipping.DEPENDENCIES, "pyspark", "confluent_kafka"}


def test_functions_of_local_modules_run_in_spark(spark: SparkSession, project: ModuleType) -> None:
    installed = ship(spark, topology(project.f))
    check_executors(spark, installed)
    function = project.f
    assert spark.sparkContext.parallelize([5], 1).map(lambda value: function(None, value)).collect() == [5]
    with pytest.raises(StreamsError, match=r"Python modules are missing on executors: .* lacks nowhere\."):
        check_executors(spark, ["nowhere"])
