"""The process that Spark forks its Python workers from: it imports once what each of them would import for itself.

Spark's own daemon forks workers that know nothing: the first task of each spends a second of CPU time on imports, and
each task ends with a walk over all they brought in, to collect garbage. Here both is done before the fork. A user's
modules are not imported: each epoch brings its own (`operators/functions/user_code.py`).

The imports start no thread of Python's. Those of OpenBLAS and jemalloc, which do, stop and begin anew around a fork by
handlers of their own.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

from milepost.spark.worker.worker_memory import reduce_reserved_memory

_PRELOADED_MODULES = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "milepost.spark.driver.kept_frame",
)


def _main() -> None:
    reduce_reserved_memory()
    daemon: Any = import_module("pyspark.daemon")
    serve = daemon.worker

    def serve_quietly(sock: Any, authenticated: bool) -> int:
        """Run a worker's next task. One that Spark has given up has nobody to answer: why is told by Spark, once."""
        try:
            return int(serve(sock, authenticated))
        except (BrokenPipeError, ConnectionResetError):
            return 1

    daemon.worker = serve_quietly
    for name in _PRELOADED_MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()  # what is here now lives as long as any worker, and its pages stay shared
    daemon.manager()


if __name__ == "__main__":
    _main()
