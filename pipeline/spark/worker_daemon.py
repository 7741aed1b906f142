"""The process that Spark forks its Python workers from: it imports once what each of them would import for itself.

Spark's own daemon forks workers that know nothing: the first task of each spends a second of CPU time on imports, and
each task ends with a walk over all they brought in, to collect garbage. Here both is done before the fork. A user's
modules are not imported: each epoch brings its own (`pipeline/operators/user_code.py`).

The imports start no thread of Python's. Those of OpenBLAS and jemalloc, which do, stop and begin anew around a fork by
handlers of their own.
"""

from __future__ import annotations

import gc
import socket

import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pyspark.daemon
import pyspark.sql.pandas.serializers
import pyspark.worker

import pipeline.spark.epoch_graph  # noqa: F401

_serve = pyspark.daemon.worker


def _serve_quietly(sock: socket.socket, authenticated: bool) -> int:
    """Run a worker's next task. One that Spark has given up has nobody to answer: why is told by Spark, once."""
    try:
        return _serve(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    pyspark.daemon.worker = _serve_quietly
    gc.collect()
    gc.freeze()  # what is here now lives as long as any worker, and its pages stay shared
    pyspark.daemon.manager()
