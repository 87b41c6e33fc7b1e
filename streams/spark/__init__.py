"""Spark as a back end: a topology as one Structured Streaming query whose stages run the shared task."""

from importlib.util import find_spec

from headwater.errors import StreamsError

__all__: list[str] = []


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


# Looked for and not imported: Spark starts a process for every source and partition, and pandas takes half a second.
_missing = [module for module in ("pyspark", "google.protobuf", "pandas", "pyarrow") if not _is_there(module)]
if _missing:
    raise StreamsError(
        f"Spark is not installed ({', '.join(_missing)} is missing): run pip install 'headwater[spark]'."
    )
