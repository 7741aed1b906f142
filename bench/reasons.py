"""Why a target is missed: a sentence each, written by hand; the report prints it beside the row while it is missed."""

from __future__ import annotations

_FLOOR = (
    "much of an epoch is work that does not shrink with rows or keys: Spark's scheduling, rows passed between "
    "the JVM and Python and back, waiting for the disk at each object (phases `spark`, `exchange`, `async`)"
)
_LIMIT = (
    "the limit has no shuffle, no second process, no published table and no fsync; the phases `spark`, `exchange` and "
    "`stage` alone take longer than all of it"
)
REASONS: dict[str, str] = {
    "10 k keys: Structured Streaming's better store": _FLOOR,
    "10 k keys: PyFlink SQL's better backend": _FLOOR,
    "1 M keys: Structured Streaming's better store": _FLOOR,
    "1 M keys: PyFlink SQL's better backend": _FLOOR,
    "5 M keys: Structured Streaming's better store": _FLOOR,
    "5 M keys: PyFlink SQL's better backend": _FLOOR,
    "10 k keys: ours against the bare limit": _LIMIT,
    "1 M keys: ours against the bare limit": _LIMIT,
    "5 M keys: ours against the bare limit": _LIMIT,
}
