"""Stream time set back on Spark: a file beside the checkpoint asks for it, and every shard does it once, in its next
batch. It owns the file; what a task does then is streams/set_back.py's.

The file is JSON: `id`, which tells a request from earlier ones, and `to`, in epoch milliseconds. It stays: a shard that
has no records for a while does it later, and each remembers in its own state that it has."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from headwater.errors import StreamsError
from headwater.streams.set_back import SetBack

__all__ = ["REQUEST", "read_request", "write_request"]

REQUEST = "stream-time.json"


def write_request(checkpoint: Path, to: int) -> None:
    """Ask a query to set its stream time back when it is started next."""
    fresh = checkpoint / f"{REQUEST}.new"
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(SetBack(to)))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(checkpoint / REQUEST)


def read_request(spark: SparkSession, checkpoint: str) -> SetBack | None:
    """What is asked of a query, None for nothing."""
    jvm = spark._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, REQUEST)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(path):
        return None
    stream = files.open(path)
    data = bytes(stream.readAllBytes())
    stream.close()
    try:
        return msgspec.json.decode(data, type=SetBack)
    except msgspec.DecodeError as error:
        raise StreamsError(
            f"{REQUEST} in the checkpoint {checkpoint} cannot be read ({error}): write it again (headwater reset --on "
            "spark --stream-time TIME)"
        ) from error
