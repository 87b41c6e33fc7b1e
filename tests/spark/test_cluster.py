"""A standalone cluster whose executors do not have Headwater: what is sent to them, what is said of what they lack."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from headwater import Admin, Consumer, Float64, Producer
from tests.spark.cluster import Cluster, cluster, drive, python_without

DRIVER = """
    import json, os, sys
    from pathlib import Path
    from headwater import StreamsError
    from headwater.streams.spark.session import open_session
    from headwater.streams.spark.shipping import check_executors, ship

    spark = open_session("cluster-test", conf={
        "spark.master": os.environ["MASTER"], "spark.ui.enabled": "false", "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        # On a busy machine a Python worker takes longer than 15 seconds to start.
        "spark.python.authenticate.socketTimeout": "120s",
    }, log=Path("spark.log"))
"""
SHOP = """
    import msgspec
    import rich
    from headwater import Float64, Json, StreamsBuilder
    from shop.rates import in_euro

    class Order(msgspec.Struct):
        amount: float

    builder = StreamsBuilder()
    orders = builder.stream("orders", value=Json(type=Order))
    euros = orders.map_values(lambda order: in_euro(order.amount))
    euros.to("euros")
    spent = euros.group_by_key(value=Float64()).reduce(lambda one, other: one + other, store="spent")
    spent.to_stream().to("spent", value=Float64())
    topology = builder.build()
"""
RATES = """
    import pkgutil

    def in_euro(amount):
        return amount * float(pkgutil.get_data("shop", "rate.txt"))
"""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").write_text("")
    (folder / "shop" / "rate.txt").write_text("0.5")
    (folder / "shop" / "rates.py").write_text(dedent(RATES))
    (folder / "revenue.py").write_text(dedent(SHOP))
    with cluster(folder) as running:
        yield running


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without(tmp_path_factory.mktemp("python") / "venv")


def run(standalone: Cluster, python: Path, body: str, **more: str) -> dict[str, object]:
    script = standalone.folder / "driver.py"
    script.write_text(dedent(DRIVER) + dedent(body))
    done = drive(standalone, str(script), python, **more)
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_package_and_application_reach_executors(standalone: Cluster, python: Path) -> None:
    told = run(
        standalone,
        python,
        """
        from revenue import topology

        def look(batches):
            import pyarrow
            try:
                import headwater
                from headwater.streams.driver import TopologyTestDriver
                import revenue
            except ImportError as error:
                yield pyarrow.RecordBatch.from_pylist([{"said": str(error)}])
                return
            for _ in batches:
                with TopologyTestDriver(revenue.topology) as driver:
                    driver.input("orders").send("a", revenue.Order(12.0))
                    (record,) = driver.output("euros").read_all()
                said = [headwater.__file__, record.value, os.getcwd(), sys.executable]
                yield pyarrow.RecordBatch.from_pylist([{"said": json.dumps(said)}])

        def ask():
            return spark.range(1).mapInArrow(look, "said string").collect()[0].said

        before = ask()
        installed = ship(spark, topology)
        check_executors(spark, installed)
        first = ask()
        sent = len(spark.sparkContext._python_includes)
        ship(spark, topology)
        again = len(spark.sparkContext._python_includes) - sent
        print(json.dumps({"before": before, "after": json.loads(first), "installed": installed, "again": again}))
        """,
    )
    assert "No module named 'headwater'" in str(told["before"])
    place, euros, folder, executable = told["after"]  # type: ignore[misc]
    assert ".zip/headwater/__init__.py" in place
    assert euros == 6.0
    assert folder.startswith(str(standalone.folder / "work"))
    assert executable == str(python)
    assert told["installed"] == ["rich"]
    assert told["again"] == 0


def test_a_query_runs_on_the_cluster(standalone: Cluster, python: Path) -> None:
    broker = f"log://{standalone.folder / 'log'}"
    Admin(broker).create_topic("orders", 2)
    with Producer(broker) as producer:
        for number in range(20):
            producer.send("orders", key=f"k{number % 4}", value='{"amount": 3.0}', timestamp=number)
    checkpoint = standalone.folder / "checkpoint"
    options = ["--broker", broker, "--checkpoint", str(checkpoint), "--trigger", "available-now", "--json"]
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"]
    conf += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    conf += ["--conf", "spark.python.authenticate.socketTimeout=120s"]
    main = "import sys; from headwater.streams.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, "run", "revenue.py", "--on=spark", "--master", standalone.master, *options, *conf],
        cwd=standalone.folder,
        env={**standalone.environment, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=480,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout)["records"] == 20
    with Consumer(broker, ["spent", "euros"]) as consumer:
        records = [record for poll in iter(consumer.poll, []) for record in poll]
    assert sum(record.topic == "euros" for record in records) == 20
    spent = {record.key: Float64().decode(record.value) for record in records if record.topic == "spent"}
    assert spent == {f"k{number}".encode(): 7.5 for number in range(4)}


def test_modules_that_executors_lack_are_named(standalone: Cluster, tmp_path: Path) -> None:
    python = python_without(tmp_path / "venv", "msgspec", "pyarrow", "confluent_kafka")
    told = run(
        standalone,
        python,
        """
        ship(spark)
        told = []
        for kafka in (False, True):
            try:
                check_executors(spark, ["no_such_module"], kafka=kafka)
            except StreamsError as error:
                told.append(str(error))
        print(json.dumps({"told": told}))
        """,
    )
    without, with_kafka = told["told"]  # type: ignore[misc]
    assert "lacks msgspec, no_such_module, pyarrow. Install them into" in without
    assert str(python) in without
    assert "lacks confluent_kafka, msgspec, no_such_module, pyarrow." in with_kafka


OTHER_VERSION = """
import sys
from collections import namedtuple
kind = namedtuple("version_info", "major minor micro releaselevel serial")
sys.version_info = kind(3, sys.version_info[1] + 1, *sys.version_info[2:])
"""


def test_a_python_that_does_not_fit_is_named(standalone: Cluster, tmp_path: Path) -> None:
    body = """
        try:
            check_executors(spark)
        except StreamsError as error:
            print(json.dumps({"told": str(error)}))
    """
    told = run(standalone, tmp_path / "no-python", body)
    assert f"There is no {tmp_path}/no-python on 127.0.0.1" in str(told["told"])
    other = python_without(tmp_path / "venv")
    # A real interpreter of another version would need every dependency built for it.
    next((tmp_path / "venv").glob("lib/python*/site-packages")).joinpath("sitecustomize.py").write_text(OTHER_VERSION)
    told = run(standalone, other, body)
    ours, theirs = (f"3.{sys.version_info[1] + more}" for more in (0, 1))
    assert f"{other} on 127.0.0.1 is Python {theirs}, but this process runs {ours}: " in str(told["told"])
