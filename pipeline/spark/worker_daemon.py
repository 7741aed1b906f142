"""The process that Spark forks its Python workers from: it imports once what each of them would import for itself.

Spark's own daemon forks workers that know nothing: the first task of each spends a second of CPU time on imports, and
each task ends with a walk over all they brought in, to collect garbage. Here both is done before the fork. A user's
modules are not imported: each epoch brings its own (`pipeline/operators/user_code.py`).
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import pipeline.spark.epoch_graph  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # what is here now lives as long as any worker, and its pages stay shared
    manager()
