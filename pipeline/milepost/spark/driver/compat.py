"""Differences between the supported versions of PySpark and of Spark servers.

A driver, its Python workers and a Spark Connect server may have three versions. So each function decides by the version
of the side that it calls: `pyspark.__version__` is that of this process, which may be a worker, and `session.version`
is that of the server.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import StructType

from milepost.extras import release_of

Release = tuple[int, int]

EXCHANGE_BY_ID: Release = (4, 1)
"""First version with `DataFrame.repartitionById`."""

GRPC_STATUS: Release = (4, 1)
"""First version with the status code of the call in errors of Spark Connect."""

ARROW_TIME_ZONE: Release = (4, 2)
"""First version in which `to_arrow_schema` takes `timezone`. Before, it takes `timestamp_utc`."""

OPERATION_STATUSES: Release = (4, 2)
"""First version with Spark Connect's call for the states of a session's jobs."""

_NUMBER = "__number"
"""Column with a number whose hash selects a row's receiver."""

_CANDIDATES_PER_RECEIVER = 16
"""How many numbers are hashed per receiver at first: usually enough to find one for each receiver."""


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return the Spark type of an Arrow schema. A timestamp without a time zone is TIMESTAMP_NTZ in every version."""
    return pandas_types.from_arrow_schema(schema, prefer_timestamp_ntz=True)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges rows of this type. Timestamps are microseconds in UTC."""
    convert: Any = pandas_types.to_arrow_schema
    if release_of(pyspark.__version__) < ARROW_TIME_ZONE:
        return convert(schema, timestamp_utc=True)
    return convert(schema, timezone="UTC")


def exchange(frame: DataFrame, receivers: int) -> DataFrame:
    """Send each row of a frame to the task with the number in its column `subtask`, from 0 to `receivers` - 1.

    Spark 4.0 can exchange rows only by the Murmur3 hash of a value. So each receiver has a number whose hash selects
    it. With three receivers::

        subtask  number  pmod(hash(number), 3)
        0        2       0
        1        0       1
        2        4       2
    """
    session = frame.sparkSession
    if min(release_of(pyspark.__version__), release_of(session.version)) < EXCHANGE_BY_ID:
        numbers = ", ".join(map(str, _numbers_for(session, receivers)))
        numbered = frame.selectExpr("*", f"get(array({numbers}), subtask) AS `{_NUMBER}`")
        return numbered.repartition(receivers, _NUMBER).select(frame.columns)
    return frame.repartitionById(receivers, "subtask")


def _numbers_for(session: SparkSession, receivers: int) -> tuple[int, ...]:
    """Return a number for each receiver that Spark's hash exchange sends there. Spark itself hashes them."""
    if receivers not in _numbers:
        places: dict[int, int] = {}
        count = receivers * _CANDIDATES_PER_RECEIVER
        while len(places) < receivers:
            hashed = f"transform(sequence(0, {count - 1}), number -> pmod(hash(number), {receivers}))"
            (row,) = session.sql(f"SELECT {hashed} AS places").collect()
            places = {place: number for number, place in enumerate(row.places)}
            count *= 2
        _numbers[receivers] = tuple(places[receiver] for receiver in range(receivers))
    return _numbers[receivers]


_numbers: dict[int, tuple[int, ...]] = {}
"""Receivers -> their numbers. The hash is the same in every version and session."""


def has_running_jobs(session: Any) -> bool | None:
    """Return whether a session on a Spark Connect server runs a job; None if its version cannot say."""
    if min(release_of(pyspark.__version__), release_of(session.version)) < OPERATION_STATUSES:
        return None
    from pyspark.sql.connect.proto import GetStatusResponse

    running = GetStatusResponse.OperationStatus.OperationState.OPERATION_STATE_RUNNING
    statuses = session.client._get_operation_statuses().operation_statuses
    return any(status.state == running for status in statuses)


def grpc_status(error: BaseException) -> Any:
    """Return the status code of the failed call that an error of Spark Connect reports; None without one."""
    if release_of(pyspark.__version__) >= GRPC_STATUS:
        return getattr(error, "_grpc_status_code", None)
    import grpc

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, grpc.RpcError):
        cause = cause.__cause__ or cause.__context__
    return cause.code() if isinstance(cause, grpc.Call) else None
