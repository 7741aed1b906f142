"""The daemon that Spark forks its Python workers from, with modules preloaded.

Spark's own daemon forks workers without modules. The first task of each worker then spends 1 s of CPU time on imports,
and each task ends with a garbage collection over all imported objects. This daemon imports the modules before the fork
and freezes their objects. It does not import a user's modules, because each epoch brings its own
(`operators/functions/user_code.py`).

The imports start no Python thread. OpenBLAS and jemalloc start threads, but stop and restart them around a fork.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

from milepost.spark.worker.worker_memory import reduce_reserved_memory

_ENGINE_AND_READERS = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "milepost.spark.driver.frame_cache",
    "milepost.sources.csv.csv_reader",
    "milepost.sources.json_lines.json_lines_reader",
    "milepost.sources.parquet.parquet_reader",
)


def preload() -> None:
    """Import what a forked worker finds imported. Readers and operators are imported by name, so nothing else does."""
    for name in _ENGINE_AND_READERS:
        import_module(name)
    from milepost.operators import STATEFUL_KINDS  # imports pydantic, so not before `reduce_reserved_memory`

    for kind in STATEFUL_KINDS:
        import_module(f"milepost.operators.{kind}.run")


def _main() -> None:
    reduce_reserved_memory()
    daemon: Any = import_module("pyspark.daemon")
    serve = daemon.worker

    def serve_quietly(sock: Any, authenticated: bool) -> int:
        """Run a worker's tasks. Hide the broken pipe of a task that Spark has cancelled: Spark reports the cause."""
        try:
            return int(serve(sock, authenticated))
        except (BrokenPipeError, ConnectionResetError):
            return 1

    daemon.worker = serve_quietly
    preload()
    gc.collect()
    gc.freeze()  # these objects live as long as any worker, and their pages stay shared
    daemon.manager()


if __name__ == "__main__":
    _main()
