"""One Spark session for all tests that need one, in each process that runs tests: starting a JVM takes longer than most
of them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kafka.jars import JARS

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session with the settings that a Headwater query needs."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = sorted(Path(os.environ.get("HEADWATER_SPARK_JARS", JARS / "spark")).glob("*.jar"))
    state = "spark.sql.streaming.stateStore"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("headwater-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars", ",".join(map(str, jars)))
        # Most of what it runs, it runs a few times: the better compiler would cost more than it saves.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        # On a busy machine a Python worker takes longer than 15 seconds to start.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config(f"{state}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        .config(f"{state}.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    yield session
    session.stop()
