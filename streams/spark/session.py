"""Spark sessions that a Headwater query can run in: one opened for it, or one the user brings. It owns the settings a
query needs, and what is said where Java, Spark or a session does not fit; which jars Kafka needs is kafka.py's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headwater.errors import StreamsError
from headwater.streams.broker import is_kafka

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # it comes without types

__all__ = ["broker_settings", "configure", "is_local", "open_session"]

_STATE = "spark.sql.streaming.stateStore"
# Without these a query fails, or is wrong; any session takes them, also one that runs already.
NEEDED = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # Else every commit of a batch uploads whole snapshots.
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}
_QUIET = {
    "spark.ui.showConsoleProgress": "false",
    # Spark warns of every key that its state does not have.
    "spark.log.level": "ERROR",
    "spark.executor.syncLogLevel.enabled": "true",
}
_OLDEST_JAVA = 17
_OLDEST_SPARK = (4, 2)


def open_session(
    app_id: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """Return a new session with the settings a query needs; those in `conf` are added to them, and win.

    The master is the one given, else that of `conf` or of Spark's own configuration, else all cores of this machine.
    What Spark and the workers' Python print goes to the file `log`, if one is given.
    """
    if SparkContext._active_spark_context is not None:
        raise StreamsError("There is a Spark session in this process already: use it, SparkBackend(spark).start(…).")
    given = dict(conf or {})
    if master is not None:
        given["spark.master"] = master
    if "spark.master" in given:
        _check_master(given["spark.master"])
    _check_pyspark()
    _check_java()
    # Spark would start whatever `python3` is there, on the driver and on the executors.
    os.environ["PYSPARK_PYTHON"] = given.pop("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", sys.executable))
    settings = SparkConf(loadDefaults=False).setAppName(app_id)
    settings.setAll(list({**_QUIET, **NEEDED, **given}.items()))
    try:
        SparkContext(conf=settings, gateway=_gateway(settings, log))
    except Exception as error:
        more = "" if log is None else f" (more in {log})"
        said = str(error).strip().partition("\n")[0].rstrip(".")
        where = f" at {given['spark.master']}" if "spark.master" in given else ""
        raise StreamsError(f"Spark cannot be started{where}: {said}{more}.") from error
    return SparkSession.builder.getOrCreate()


def _gateway(settings: SparkConf, log: Path | None) -> JavaGateway | None:
    """A JVM of our own; None where an earlier session has left one, which is used again."""
    if SparkContext._gateway is not None:
        return None
    with open(log or os.devnull, "ab") as output:
        streams = {} if log is None else {"stdout": output, "stderr": output}
        # A session of its own in the operating system's sense: Ctrl-C is for this process, which lets a batch end.
        gateway: JavaGateway = launch_gateway(settings, {"start_new_session": True, **streams})  # type: ignore[no-untyped-call]  # it has no types
        return gateway


def is_local(master: str | None, conf: Mapping[str, str]) -> bool:
    """Whether a session would run on this machine alone, as far as the master or the settings say."""
    return (master or conf.get("spark.master", "local")).startswith("local")


def broker_settings(broker: str) -> dict[str, str]:
    """The settings that a session needs to read and write a broker's topics."""
    if not is_kafka(broker):
        return {}
    # Imported late: without Kafka its client need not be installed.
    from headwater.streams.spark.kafka import jars_conf

    return jars_conf()


def configure(spark: SparkSession) -> None:
    """Give a session that runs already the settings a query needs; raise what they cannot be given to."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise StreamsError(
            "A Spark Connect session cannot run a topology: the package cannot be sent to its executors, nor its "
            "state be read. Open a session in this process: SparkSession.builder.master(…)."
        )
    _check_pyspark()
    faults = []
    for name, value in NEEDED.items():
        if spark.conf.get(name, None) != value:
            if spark.conf.isModifiable(name):
                spark.conf.set(name, value)
            else:
                faults.append(f"{name}={value}")
    if faults:
        raise StreamsError(f"The Spark session must be started with {', '.join(faults)}: it cannot be changed later.")


def _check_master(master: str) -> None:
    if not re.match(r"local$|local\[|local-cluster\[|yarn$|spark://|k8s://", master):
        connect = "; Spark Connect cannot run a topology" if master.startswith("sc://") else ""
        raise StreamsError(
            f"There is no Spark master {master!r}: write local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT{connect}."
        )


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = (
        f"Spark needs Java {_OLDEST_JAVA} or later: install it (apt install openjdk-17-jre-headless; "
        "brew install openjdk@17), and set JAVA_HOME if several are installed."
    )
    if java is None or not Path(java).exists():
        looked = f"JAVA_HOME is {home}, but has no bin/java" if home else "There is no java on the PATH"
        raise StreamsError(f"{looked}. {remedy}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise StreamsError(f"{java} does not say which Java it is, but: {said.strip()[:200]!r}. {remedy}")
    if int(found[1]) < _OLDEST_JAVA:
        raise StreamsError(f"{java} is Java {found[1]}. {remedy}")


def _check_pyspark() -> None:
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _OLDEST_SPARK:
        oldest = "{}.{}".format(*_OLDEST_SPARK)
        raise StreamsError(
            f"pyspark is {pyspark.__version__}, but must be {oldest} or later: run pip install 'headwater[spark]'."
        )
