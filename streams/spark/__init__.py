"""Spark as a back end: a topology as one Structured Streaming query whose stages run the shared task."""

from headwater.errors import StreamsError

try:
    import google.protobuf  # type: ignore[import-untyped]
    import pandas  # type: ignore[import-untyped]
    import pyarrow  # type: ignore[import-untyped]
    import pyspark
except ModuleNotFoundError as error:
    raise StreamsError(
        f"Spark is not installed ({error.name} is missing): run pip install 'headwater[spark]'."
    ) from error

__all__: list[str] = []

assert google.protobuf and pandas and pyarrow and pyspark  # noqa: PT018 - imported to see that they are there
