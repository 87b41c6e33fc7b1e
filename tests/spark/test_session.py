"""Sessions: the settings they have, and what is said where one cannot be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import StreamsError
from headwater.streams.spark import session
from headwater.streams.spark.session import configure, open_session

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def test_a_session_of_its_own(tmp_path: Path) -> None:
    script = """
import json, os, sys
from pathlib import Path
from headwater.streams.spark.session import open_session
conf = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.memory": "512m"}
conf["spark.python.authenticate.socketTimeout"] = "120s"
spark = open_session("shop", master="local[1]", conf=conf, log=Path("spark.log"))
java = spark.sparkContext._gateway.proc.pid
pythons = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
get = spark.conf.get
told = [get("spark.app.name"), get("spark.master"), get("spark.sql.session.timeZone"), pythons, os.getsid(java) == java]
spark.stop()
again = open_session("shop-2", master="local[1]", conf=conf)
print(json.dumps([*told, again.conf.get("spark.app.name"), again.sparkContext._gateway.proc.pid == java]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["shop", "local[1]", "Asia/Tokyo", [sys.executable], True, "shop-2", True]
    assert done.stderr == ""
    assert (tmp_path / "spark.log").stat().st_size > 0


def test_a_session_that_is_there_is_given_what_is_needed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.conf.set(PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    configure(spark)
    # What is not needed is the user's business.
    assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    spark.conf.set("spark.sql.session.timeZone", zone)
    assert {name: spark.conf.get(name) for name in session.NEEDED} == session.NEEDED
    with pytest.raises(StreamsError, match=r"There is a Spark session in this process already"):
        open_session("another")
    monkeypatch.setattr(session, "NEEDED", {**session.NEEDED, "spark.executor.memory": "7g", "spark.ui.port": "1"})
    with pytest.raises(StreamsError, match=r"must be started with spark\.executor\.memory=7g, spark\.ui\.port=1"):
        configure(spark)


def test_spark_connect_is_refused() -> None:
    # Its client is not installed here: only where its sessions' class is defined matters.
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(StreamsError, match=r"A Spark Connect session cannot run a topology"):
        configure(connected)


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """None that open_session would see, whatever ran before."""
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    return monkeypatch


@pytest.mark.parametrize("master", ["sc://host:15002", "host:7077", "mesos://host"])
def test_a_master_that_is_none(no_session: pytest.MonkeyPatch, master: str) -> None:
    with pytest.raises(StreamsError, match=rf"There is no Spark master '{master}': write local\[N\], spark://HOST:PORT"):
        open_session("shop", master=master)


def test_java_is_missing(no_session: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_session.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StreamsError, match=rf"JAVA_HOME is {tmp_path}, but has no bin/java\. Spark needs Java 17"):
        open_session("shop")
    no_session.delenv("JAVA_HOME")
    no_session.setenv("PATH", str(tmp_path))
    with pytest.raises(StreamsError, match=r"There is no java on the PATH\. Spark needs Java 17 or later: install it"):
        open_session("shop")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('java version "1.8.0_362"', "is Java 8"),
        ("what?", "does not say which Java it is, but: 'what"),
    ],
)
def test_java_is_too_old(no_session: pytest.MonkeyPatch, tmp_path: Path, said: str, told: str) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    no_session.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StreamsError, match=rf"{java} {told}.*Spark needs Java 17"):
        open_session("shop")


def test_pyspark_is_too_old(no_session: pytest.MonkeyPatch) -> None:
    no_session.setattr("pyspark.__version__", "3.5.1")
    with pytest.raises(StreamsError, match=r"pyspark is 3\.5\.1, but must be 4\.2 or later: run pip install"):
        open_session("shop")


def test_spark_is_not_installed(tmp_path: Path) -> None:
    script = "import sys; sys.modules['pyspark'] = None; import headwater; import headwater.streams.spark.session"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr.endswith("run pip install 'headwater[spark]'.\n")


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    script = """
from pathlib import Path
from headwater import StreamsError
from headwater.streams.spark.session import open_session
try:
    open_session("shop", master="local[nonsense]", log=Path("spark.log"))
except StreamsError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert "Spark cannot be started at local[nonsense]: " in done.stdout
    assert "(more in spark.log)." in done.stdout
