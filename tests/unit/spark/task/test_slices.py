"""A subtask of little memory works on its key groups in slices, and gives what one with room gives (DESIGN 5)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import EnvironmentUnusable
from milepost.spark.worker.worker_memory import MemoryBudget
from milepost.state.keyed.slices import slices_within
from milepost_testkit import wording
from milepost_testkit.tasks.clocks import ticking
from milepost_testkit.tasks.dataplane import DataPlane
from milepost_testkit.tasks.faults.limited_task import ROWS, rows_of
from tests.unit.spark.test_unaligned_epochs import FINAL, SMALL, assert_equal, cut, events, nothing, open_plane

TINY = MemoryBudget(bytes=4_000)


@pytest.mark.parametrize(
    ("seed", "budgets", "parallelism", "left"),
    [
        pytest.param(1, [10**9, 1, 4_000, 10**9], [2, 1, 3, 2], 2, id="whole, then in slices, then whole"),
        pytest.param(7, [4_000, 20_000, 4_000], [2, 2, 1], 0, id="in other slices each time", marks=pytest.mark.deep),
    ],
)
def test_slices_change_no_row_and_no_state(
    seed: int, budgets: list[int], parallelism: list[int], left: int, tmp_path: Path
) -> None:
    """Other slices in each epoch, other subtasks, rows that one epoch left in flight; then drained to the end."""
    whole, sliced = open_plane(tmp_path, "whole"), open_plane(tmp_path, "sliced")
    for epoch, budget in enumerate(budgets):
        sources = events(seed, epoch, 40)
        whole.epoch(sources, parallelism=2)
        if epoch == left:
            sliced.epoch(sources, parallelism=parallelism[epoch], alignment=cut(9), clock=ticking(1), limits=SMALL)
        else:
            sliced.epoch(sources, parallelism=parallelism[epoch], limits=SMALL, budget=MemoryBudget(budget))
    for plane in (whole, sliced):
        plane.epoch(nothing(), parallelism=2, alignment=FINAL, budget=TINY)
    assert_equal(sliced, whole)


@pytest.mark.deep
def test_each_slice_writes_a_run_of_its_own_and_all_together_cover_the_subtask(tmp_path: Path) -> None:
    plane = open_plane(tmp_path, "store")
    plane.epoch(events(3, 0, 200), budget=TINY)
    for handle in plane.states["unique"].handles:
        ranges = sorted((run.valid.start, run.valid.stop) for run in handle.runs)
        assert len(ranges) > 1, "a budget of 4 kB holds no 100 keys"
        assert all(run.kind.value == "base" and run.valid == run.key_groups for run in handle.runs)
        assert ranges[0][0] == handle.key_groups.start
        assert ranges[-1][1] == handle.key_groups.stop
        assert all(one[1] == following[0] for one, following in itertools.pairwise(ranges))


@pytest.mark.deep
def test_slices_that_kept_a_run_share_it_again_in_the_handle(tmp_path: Path) -> None:
    """A base that was written whole counts for all key groups, whatever slices wrote above it."""
    plane = open_plane(tmp_path, "store")
    plane.epoch(events(5, 0, 400))
    before = {run.key for handle in plane.states["unique"].handles for run in handle.runs}
    plane.epoch(events(5, 1, 30), budget=TINY)
    for handle in plane.states["unique"].handles:
        kept = [run for run in handle.runs if run.key in before]
        assert [run.valid for run in kept] == [handle.key_groups]
        assert len(handle.runs) > len(kept) + 1


@given(cost=st.lists(st.integers(0, 100), min_size=1, max_size=64), budget=st.integers(1, 400), start=st.integers(0, 9))
def test_a_slice_is_within_the_budget_or_a_single_key_group(cost: list[int], budget: int, start: int) -> None:
    own = range(start, start + len(cost))
    slices = slices_within(own, np.asarray(cost, dtype=np.int64), budget)
    assert [group for part in slices for group in part] == list(own)
    for part in slices:
        assert len(part) == 1 or sum(cost[group - start] for group in part) <= budget


def test_a_node_without_disk_space_declines_and_names_the_folder(tmp_path: Path) -> None:
    plane: DataPlane = open_plane(tmp_path, "store")
    (tmp_path / "store-cache").write_text("a file where the folder should be")
    with wording.raises(EnvironmentUnusable) as caught:
        plane.epoch(events(1, 0, 200), budget=TINY)
    assert "MILEPOST_CACHE_DIR" in caught.value.hint
    assert plane.epochs == 0


LIMIT_MB = 384
"""Of the worker's address space: some 310 MB are taken before it begins."""


def in_limited_process(folder: Path, budget: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "milepost_testkit.tasks.faults.limited_task", str(folder), str(LIMIT_MB), budget]
    environment = {**os.environ, "PYSPARK_EXECUTOR_MEMORY_MB": str(LIMIT_MB)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_state_beyond_the_limit_of_a_worker_gives_the_same_rows_and_without_slices_it_says_what_to_set(
    tmp_path: Path,
) -> None:
    """600,000 keys with three aggregates, all new in one epoch: DuckDB's answer, in runs of several slices."""
    done = in_limited_process(tmp_path, "own")
    assert done.returncode == 0, done.stderr
    epochs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(epochs[0]["state"]["runs"]) > 1
    assert all(epoch["peak_mb"] < LIMIT_MB for epoch in epochs)
    files = [str(tmp_path / "store" / epoch["staged"]["files"][0]["key"]) for epoch in epochs]
    inputs = pa.concat_tables([rows_of(epoch) for epoch in range(len(ROWS))])
    with duckdb.connect() as connection:
        connection.register("inputs", inputs)
        published = (
            f"SELECT k, n, s, m FROM read_parquet({files[1]!r}) UNION ALL "
            f"SELECT k, n, s, m FROM read_parquet({files[0]!r}) WHERE k NOT IN "
            f"(SELECT k FROM read_parquet({files[1]!r}))"
        )
        right = "SELECT k, count(*) AS n, sum(v)::BIGINT AS s, max(v) AS m FROM inputs GROUP BY k"
        for one, other in ((published, right), (right, published)):
            difference = connection.execute(f"SELECT count(*) FROM (({one}) EXCEPT ALL ({other}))").fetchone()
            assert difference == (0,)
    refused = in_limited_process(tmp_path / "other", "none")
    assert refused.returncode == 3, refused.stderr
    said = refused.stderr.splitlines()[-1]
    assert "totals" in said and "384 MiB" in said and "spark.executor.pyspark.memory" in said
    wording.matches(
        "EnvironmentUnusable",
        said,
        replace={r"\w+ of size \d+ failed|Unable to allocate .+ and data type \w+": "{why}"},
    )


@pytest.mark.deep
def test_rows_that_slices_emit_have_the_same_stamps_as_without_slices(tmp_path: Path) -> None:
    """Each slice begins with the firing watermark of the checkpoint: what fires in one is as late as in any other."""
    whole, sliced = open_plane(tmp_path, "whole"), open_plane(tmp_path, "sliced")
    fired = []
    for epoch in range(0, 12, 4):
        whole.epoch(events(11, epoch, 60))
        sliced.epoch(events(11, epoch, 60), budget=TINY)
        assert sliced.emitted == whole.emitted
        fired += [stamp_us for node, stamp_us, _ in whole.emitted if node == "hourly"]
    assert set(fired) - {None}, "windows fired in an epoch that did not begin at the start of time"
