"""A flights job that something bad happens to: what it had before, and that it loses nothing."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.jobs.flights.flights import day_key
from milepost_testkit.jobs.flights.flights_job import FLIGHTS_SPEC, FlightsJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import epochs_in_process

SINKS = ("carriers", "hourly", "late_flights")
_QUALITY = re.compile(r"^quality:\n(?: .*\n)+", re.MULTILINE)


def quality_section() -> str:
    """The text of the spec's `quality:` section."""
    found = _QUALITY.search(FLIGHTS_SPEC.read_text())
    assert found is not None
    return found.group()


@dataclass(frozen=True)
class RecoveringJob:
    """A job with checkpoint 1 complete (days 1 and 2) and days 3 and 4 landed.

    Attributes:
        before: its tables by sink, as they were when it was healthy.
    """

    job: FlightsJob
    before: dict[str, pa.Table]

    @staticmethod
    def unrun(folder: Path) -> FlightsJob:
        """A job that takes two objects per epoch and has no gate."""
        return FlightsJob.create(folder, {"max_files: 4": "max_files: 2", quality_section(): ""})

    @classmethod
    def healthy(cls, folder: Path, *, on_spark: bool = False) -> RecoveringJob:
        """Such a job after its first epoch."""
        job = cls.unrun(folder)
        job.land([1, 2])
        _run(job, on_spark)
        return cls(job, _tables(job))

    @classmethod
    def copy_of(cls, healthy: FlightsJob, folder: Path) -> RecoveringJob:
        """A copy of a healthy job, which knows nothing of where it was."""
        job = FlightsJob(Path(shutil.copytree(healthy.folder, folder)))
        job.land([3, 4])
        return cls(job, _tables(job))

    def assert_nothing_happened(self, *, aborted: str | None) -> None:
        """Nothing is published, and the newest checkpoint is the healthy one, or one aborted for this reason."""
        for name, table in _tables(self.job).items():
            assert_same_rows(table, self.before[name], name)
        checkpoints = milepost("list", self.job.spec_path, "--json").document()["checkpoints"]
        found = [(item["checkpoint_id"], item["status"], item["failure_reason"]) for item in checkpoints]
        expected = [(1, "completed", None)]
        assert found == ([(2, "aborted", aborted), *expected] if aborted else expected)

    def recover(self, *, failed: bool, on_spark: bool = False) -> None:
        """After the fix: a FAILED job runs again only once it is resumed; then the tables equal the oracle.

        Args:
            on_spark: where Spark itself has to recover. What is in the store is the same to a run without it.
        """
        job = self.job
        if failed:
            assert_clear_error(milepost("run", job.spec_path), 1, "FAILED", "milepost resume")
            assert milepost("resume", job.spec_path).exit_code == 0
        _run(job, on_spark)
        assert job.epochs() == [[key_of(1), key_of(2)], [key_of(3), key_of(4)]]
        job.assert_tables_equal_the_oracle()


def key_of(day: int) -> str:
    """The key of a day's object as the local source has it: relative to `landing/flights`."""
    key: str = day_key(day)
    return key.removeprefix("flights/")


def _run(job: FlightsJob, on_spark: bool) -> None:
    with nullcontext() if on_spark else epochs_in_process():
        assert milepost("run", job.spec_path).exit_code == 0


def _tables(job: FlightsJob) -> dict[str, pa.Table]:
    return {name: job.master().reports.read(name) for name in SINKS}
