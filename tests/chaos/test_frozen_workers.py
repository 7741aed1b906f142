"""A Python worker that is frozen outlives its driver, is woken behind another run's epoch, and writes: nothing changes.

As when a cluster's machine was suspended: it then acts as a zombie, below a token that nothing refers to.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from milepost.jobmaster import JobMaster
from milepost_testkit.commands.mortal_processes import SECONDS
from milepost_testkit.jobs.flights.kill_chain import KillChain
from milepost_testkit.processes.processes import wait_until
from milepost_testkit.tasks.faults.frozen_worker import FrozenWorker

pytestmark = pytest.mark.deep

STATE = "/state/"
STAGED = "hourly/_milepost/data/"
MEASURED = "/metrics/1-"
CHECKPOINT_MS = 660_000
"""Longer than the timeout of a checkpoint, and than a heartbeat counts."""
DAY_MS = 24 * 3_600_000
"""Longer than any grace."""


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param((STAGED,), id="staged sink file"),
        pytest.param((STATE, MEASURED), id="state run, and what it measured"),
    ],
)
def test_a_worker_that_is_woken_behind_another_epoch_changes_nothing(tmp_path: Path, writes: tuple[str, ...]) -> None:
    """I3, I10: it writes what it was about to; no reader and no later epoch sees it, and gc finds it."""
    chain = KillChain(tmp_path, 2, spark=False)
    try:
        chain.succeeds()
        for write in writes:
            _outlived(chain, write)
        _catches_up(chain)
    finally:
        chain.processes.end()


def _outlived(chain: KillChain, write: str) -> None:
    """One epoch on Spark loses its driver while a worker is frozen before a write; another run takes its place."""
    chain.keep_unread(2)
    told = chain.folder / f"frozen {len(chain.processes.started)}"
    run = chain.processes.start(
        "run", str(chain.job.spec_path), plan={"freeze_worker": {"match": write, "told": str(told)}}
    )
    worker = FrozenWorker.awaited(told, SECONDS)
    run.process.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL and run.jvm_lives()
    assert worker.is_stopped() and not worker.place.exists()
    lost = chain.pending
    before = chain.state.timeline().head
    chain.succeeds("--until-caught-up", plan={"clock_ahead_ms": CHECKPOINT_MS})
    head = chain.state.timeline().head
    assert head > before, "another run completed an epoch"
    version = chain.state.version
    worker.wake()
    wait_until(worker.place.exists, seconds=SECONDS, what="the write of the worker that was woken")
    assert re.search(f"/chk-0*{lost.checkpoint_id}/t0*{lost.token}/", str(worker.place)), worker.place
    assert (chain.state.timeline().head, chain.state.version) == (head, version)
    chain.assert_only_completed_is_published()
    assert chain.job.master().reports.verify(deep=True).discarded == ()
    chain.job.assert_tables_equal_the_oracle()
    for days in (2, 4):  # listed, and once it has been listed for the grace period deleted
        gc = chain.processes.start("gc", str(chain.job.spec_path), plan={"clock_ahead_ms": days * DAY_MS})
        assert gc.wait() == 0, gc.tail()
    assert not worker.place.exists(), "gc has found what it wrote"
    audit = JobMaster(chain.job.load()).reports.fsck()
    assert audit.exit_code == 0 and audit.complete and not audit.unreachable and not audit.foreign, audit


def _catches_up(chain: KillChain) -> None:
    chain.keep_unread(1)
    chain.succeeds("--until-caught-up", plan={"clock_ahead_ms": CHECKPOINT_MS})
    chain.job.assert_tables_equal_the_oracle()
    consumed = [key for epoch in chain.job.epochs() for key in epoch]
    assert len(consumed) == len(set(consumed)) == chain.days
