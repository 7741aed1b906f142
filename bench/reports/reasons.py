"""Reasons for missed targets, one hand-written sentence each. The report prints them with the missed row.

Of a target that is missed without one the report says that the reason is not known yet.
"""

from __future__ import annotations

_FLOOR = (
    "much of an epoch is work that does not shrink with rows or keys: Spark's scheduling, rows passed between the JVM "
    "and Python and back, waiting for the disk at each object (phases `spark`, `exchange`, `async`)"
)
_LIMIT = (
    "the limit has no shuffle, no second process, no published table and no fsync; the phases `spark`, `exchange` and "
    "`stage` alone take longer than all of it"
)
_SERVED = (
    "a running server spares `availableNow` its JVM as well; of ours more than half is the start of Python and the "
    "imports of Spark's client, which both of them pay"
)
_RANDOM = (
    "6 bytes of it are sums and maxima of random prices, near the least that numbers so random take; what the key "
    "takes grows with the keys that lie between two changed ones"
)
_EXECUTORS = (
    "the machine has two cores, of which one executor leaves the second to the driver, its JVM, the store and Python's "
    "output: the other executor takes it from them. The phase `spark` is the same for both; with more keys the tasks' "
    "own part, which is divided, is more of an epoch"
)
_STREAMING, _FLINK = "Structured Streaming's better store", "PyFlink SQL's better backend"
_SIZES = ("10 k keys", "1 M keys", "5 M keys")
_OTHERS = ("tumbling window", "deduplicate", "string key", "composite key", "Zipf-skewed key")

REASONS: dict[str, str] = {
    **{f"{what}: {_STREAMING}": _FLOOR for what in (*_SIZES, *_OTHERS)},
    **{f"{keys}: {_FLINK}": _FLOOR for keys in _SIZES},
    **{f"{keys}: ours against the bare limit": _LIMIT for keys in _SIZES},
    **{f"new process, {keys}, both on a running server: availableNow": _SERVED for keys in _SIZES[1:]},
    "5 M keys, against our own 1 M keys": (
        "phase `process`: a changed key is looked for in a base five times as large, and in as many deltas as the base "
        "has not swallowed yet"
    ),
    **{f"{keys}: two executors of one core against one": _EXECUTORS for keys in _SIZES[1:]},
    **{f"{keys}: state bytes per changed key": _RANDOM for keys in _SIZES[1:]},
    "restore of 5 M keys without cache, against pyarrow": (
        "a restore also hashes the keys, brings the rows into the order of the hash and writes the node's cache, which "
        "is three times as large as the files: a third of its time, or half where untouched memory is dear"
    ),
    "lookup of 1 M rows in 100 k, against the job without it": (
        "that job only copies two columns, in 0.1 s of CPU beside Spark's share; a lookup takes 0.07 s, two thirds of "
        "it to find the rows, and writing the two columns that it adds 0.04 s"
    ),
    "checkpoint overhead, 1 M keys": (
        "nearly all of it is `async`: the part of encoding and storing the snapshot that nothing else overlaps"
    ),
}

_GROUPED = (
    "of our time 0.5 s are the same with our own table (reading, grouping, state, checkpoint), which Spark is spared: "
    "it gets grouped rows. Rewriting 64 buckets takes 0.2 s of two cores: a quarter of it the sort, since made twice "
    "as fast, a third the encoding"
)
_SNAPSHOTS = (
    "each new metadata file of Iceberg lists all snapshots, some 800 bytes each; the first of them expire after the "
    "grace period, which is longer than the run. With that period over it stays as small (a test commits 300 times)"
)
TABLE_REASONS: dict[str, str] = {
    "Delta, 1 M keys: Spark's better `MERGE INTO`": _GROUPED,
    "Iceberg, 1 M keys: Spark's better `MERGE INTO`": (
        f"{_GROUPED}. Over Delta's, an epoch has four objects of log in place of one, each durable before the next"
    ),
    "Delta, bytes of log per commit: the last ones against the first": (
        "every tenth commit adds a checkpoint of the log, which names the removed files too, as long as the grace "
        "period lasts, which is longer than the run"
    ),
    "Iceberg, bytes of log per commit: the last ones against the first": _SNAPSHOTS,
}
"""Of targets of open tables."""

KAFKA_REASONS: dict[str, str] = {}
