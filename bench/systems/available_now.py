"""One epoch of Structured Streaming in a process of its own: `python -m bench.systems.available_now WORDS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.systems.contract import Folders
from bench.systems.streaming import open_spark, start_query
from bench.workloads.workloads import Workload


def main() -> None:
    document, store, work, remote = json.loads(sys.argv[1])
    workload, folders = Workload.from_json(document), Folders(Path(work))
    spark = open_spark(workload, store, folders.work, remote)
    start_query(spark, workload, folders, available_now=True).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
