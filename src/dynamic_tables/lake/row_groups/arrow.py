"""Python functions over Arrow batches in executors, which need Arrow there and nothing of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import (
    vectorized_udf,  # ty: ignore[import-not-found]  not in its stubs
)
from pyspark.util import PythonEvalType

from dynamic_tables.names import quote

Batches = Iterator[Any]


def map_in_arrow(
    frame: DataFrame, function: Callable[[Batches], Batches], columns: str
) -> DataFrame:
    """`DataFrame.mapInArrow`, which asks for pandas without using it."""
    by_batches = vectorized_udf(
        function,
        returnType=columns,
        functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    arguments = by_batches(*[frame[quote(name)] for name in frame.columns])
    mapped = frame._jdf.mapInArrow(arguments._jc, False, None)
    return DataFrame(mapped, frame.sparkSession)


def send_along(*modules: ModuleType) -> None:
    """Let functions of these modules travel as they are: executors need not have them."""
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
