"""Workers without a limit keep what they freed for the next epoch; one with a limit gives it back at once."""

from __future__ import annotations

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
def test_pages_are_asked_for_again_each_epoch_only_where_memory_is_limited(worker: str, least: int, most: int) -> None:
    """An epoch here takes 96 MB: 24,000 pages."""
    ended = subprocess.run([sys.executable, "-c", WORK, worker], capture_output=True, text=True, check=True)
    assert least <= int(ended.stdout) <= most
