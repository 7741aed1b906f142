"""Workers without a limit retain freed memory for the next epoch; those with a limit return it immediately."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WORK = """
import resource, sys
from milepost.spark.worker.worker_memory import reduce_reserved_memory, apply_worker_limit
reduce_reserved_memory()
import numpy as np, pyarrow as pa, pyarrow.compute as pc
if sys.argv[1] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
apply_worker_limit()

def epoch():
    made = [np.arange(300_000) for _ in range(20)] + [pc.add(pa.array(np.arange(300_000)), at) for at in range(20)]
    return len(made)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(3):
    epoch()
before = faults()
for _ in range(5):
    epoch()
print((faults() - before) // 5)
"""


@pytest.mark.parametrize(("worker", "least", "most"), [("unlimited", 0, 500), ("limited", 10_000, 100_000)])
def test_pages_are_allocated_anew_each_epoch_only_where_memory_is_limited(worker: str, least: int, most: int) -> None:
    """An epoch here takes 96 MB: 24,000 pages."""
    ended = subprocess.run([sys.executable, "-c", WORK, worker], capture_output=True, text=True, check=True)
    assert least <= int(ended.stdout) <= most


STACKS = """
import threading
from milepost.spark.worker.worker_memory import reduce_reserved_memory
reduce_reserved_memory()

def size_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))

before, release = size_kib(), threading.Event()
threads = [threading.Thread(target=release.wait) for _ in range(10)]
for thread in threads:
    thread.start()
print((size_kib() - before) // 10)
release.set()
"""


def test_a_thread_of_a_limited_worker_reserves_two_mebibytes_for_its_stack() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STACKS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYSPARK_EXECUTOR_MEMORY_MB": "384"},
    )
    assert int(ended.stdout) < 3 << 10
