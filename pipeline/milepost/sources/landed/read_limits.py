"""Read limits of PySpark's stream readers, available since PySpark 4.2."""

from __future__ import annotations

import inspect
from typing import Any

from milepost.errors import InvalidRequest

LIMITS = (4, 2)
"""First version of PySpark with `ReadLimit` and `SupportsTriggerAvailableNow`."""


def read_limit(source: str, max_rows: int | None, max_bytes: int | None) -> Any:
    """Return PySpark's `ReadLimit` for the limits of a source; None: it has no limit.

    Raises:
        InvalidRequest: the installed PySpark has no limits.
    """
    if not max_rows and not max_bytes:
        return None
    if not _has_limits():
        from pyspark import __version__

        raise InvalidRequest(
            f"source {source}: `land` has a limit, which needs PySpark {'.'.join(map(str, LIMITS))}, and "
            f"{__version__} is installed. Nothing was landed.",
            hint="remove the limit, or install a newer PySpark",
            source=source,
        )
    from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

    return ReadMaxRows(max_rows) if max_rows else ReadMaxBytes(max_bytes)


def takes_limit(reader: Any) -> bool:
    """Return whether a reader's `latestOffset` takes a start and a limit."""
    from pyspark.sql.datasource import DataSourceStreamReader

    if not _has_limits() or not isinstance(reader, DataSourceStreamReader):
        return False
    return bool(inspect.signature(reader.latestOffset).parameters)


def ends_itself(reader: Any) -> bool:
    """Return whether a reader fixes its end by `prepareForTriggerAvailableNow`."""
    if not _has_limits():
        return False
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    return isinstance(reader, SupportsTriggerAvailableNow)


def _has_limits() -> bool:
    from pyspark import __version__

    return tuple(map(int, __version__.split(".")[:2])) >= LIMITS
