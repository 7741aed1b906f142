"""A run that is frozen before a write and woken behind another run's epoch: nothing of that is doubled or replaced.

As a machine that was suspended, or a process that waited for memory: it goes on with what it held for true.
"""

from __future__ import annotations

import multiprocessing
from itertools import takewhile
from pathlib import Path

import pytest

from milepost_testkit.chaos.commands import PRELOADED, Act, Command, Running
from milepost_testkit.jobs.flights.kill_chain import KillChain
from milepost_testkit.processes.own_process import in_own_process

LEASE_OVER_MS = 660_000
"""Longer than the timeout of a checkpoint, and than a heartbeat counts."""
EPOCH = Command(Act.EPOCH)
WELL = "CheckpointDetails"
FEW = (
    ("/manifest/", 0, WELL),
    ("/_heartbeat$", 0, "Fenced"),
    ("/_metadata$", 0, "Fenced"),
    ("/manifest/", 1, WELL),
    ("carriers/_milepost/heads/", 0, WELL),
)
"""Which write, the how manieth of these, and how the run ends: what is asked for anew, or another has done, is well."""
MOST = 100
"""More writes than a run makes."""


class FrozenRuns:
    """One job, of which one run after the other is frozen at a write, and another run overtakes it."""

    def __init__(self, folder: Path) -> None:
        self.chain = KillChain(folder, 2, spark=False)
        self._captured = folder / "captured"
        self._captured.mkdir()
        self.run()

    def begin(self, **plan: object) -> Running:
        return Running(self.chain.job.spec_path, self._captured, EPOCH, plan=plan)

    def run(self, **plan: object) -> None:
        ended = self.begin(**plan).ended()
        assert ended.error is None, ended

    def freezes(self, match: str, write: int) -> str | None:
        """Freeze a run right before a write, let another run an epoch, wake it.

        Args: as of the plan `freeze`.
        Returns: the kind of its end; None: it made no such write.
        """
        chain = self.chain
        chain.keep_unread(2)
        told = chain.folder / "frozen"
        told.unlink(missing_ok=True)
        run = self.begin(freeze={"told": str(told), "write": write, "match": match})
        try:
            return self._overtaken(run, told, write)
        finally:
            run.kill()  # one that stays frozen would be waited for

    def _overtaken(self, run: Running, told: Path, write: int) -> str | None:
        chain = self.chain
        if not run.wait_until_frozen():
            assert run.ended().error is None
            return None
        before = chain.state.timeline().head
        self.run(clock_ahead_ms=LEASE_OVER_MS)
        overtaken = chain.state.timeline().head
        assert overtaken > before, "the other run completed an epoch"
        run.wake()
        ended = run.ended()
        what = told.read_text().removeprefix(f"{chain.job.folder.as_uri()}/")
        print(f"{write}: {what}: {ended.said or ended.error}")
        assert ended.typed, f"{what}: {ended.error}"
        assert chain.state.timeline().head >= overtaken
        chain.assert_only_completed_is_published()
        assert chain.job.master().reports.verify(deep=True).discarded == ()
        chain.job.assert_tables_equal_the_oracle()
        return ended.said or str(ended.error).partition(":")[0]

    def finish(self) -> None:
        """All that is left is read, once."""
        chain = self.chain
        while chain.job.master().reports.status().unread_objects:
            self.run(clock_ahead_ms=LEASE_OVER_MS)
        chain.job.assert_tables_equal_the_oracle()
        consumed = [key for epoch in chain.job.epochs() for key in epoch]
        assert len(consumed) == len(set(consumed)) == chain.days
        assert chain.job.master().reports.fsck().exit_code == 0


def test_a_run_that_is_frozen_beyond_its_lease_changes_nothing_once_it_is_woken(tmp_path: Path) -> None:
    """I3: what it held for true is refused, by its token, by the manifest's version or by the table's predecessor."""
    in_own_process(_few, tmp_path)


@pytest.mark.deep
def test_a_run_may_be_frozen_before_any_write(tmp_path: Path) -> None:
    in_own_process(_all, tmp_path)


def _few(folder: Path) -> None:
    multiprocessing.set_forkserver_preload([*PRELOADED])  # its job has no gate, and its tables are Parquet
    runs = FrozenRuns(folder)
    ends = [(match, write, runs.freezes(match, write)) for match, write, _ in FEW]
    assert ends == list(FEW)
    runs.finish()


def _all(folder: Path) -> None:
    runs = FrozenRuns(folder)
    met = len([*takewhile(lambda end: end is not None, (runs.freezes("", write) for write in range(MOST)))])
    assert len(FEW) < met < MOST
    runs.finish()
