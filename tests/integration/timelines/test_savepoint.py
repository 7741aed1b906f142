"""A savepoint: taken in the middle of unfinished work, moved away, and continued by another job."""

from __future__ import annotations

import shutil
from pathlib import Path

from milepost.jobmaster.job.context import JobContext
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.jobs.flights.recovering_job import SINKS, key_of
from milepost_testkit.models.data.csv_oracle import expected_tables
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane


class SecondJob(FlightsJob):
    """Another job over the same landing: its own name, storage, tables and parallelism."""

    @property
    def spec_path(self) -> Path:
        return self.folder / "config" / "second.yaml"


def test_another_job_at_another_parallelism_continues_rows_in_flight_state_and_tables(
    tmp_path: Path, plane: Plane
) -> None:
    """What both jobs did together is what the oracle computes from all landed files, late rows and windows included."""
    job = FlightsJob.create(tmp_path, {"max_files: 4": "max_files: 1", without_quality(): ""})
    job.land(range(1, 6))
    text = job.spec_path.read_text()
    second = SecondJob(tmp_path)
    places = {"name: flights\n": "name: second\n", "storage: ../store": "storage: ../other", "../lake": "../second"}
    second.edit(text, {**places, "max_files: 1": "max_files: 4", "parallelism: 2": "parallelism: 3"})
    job.run()
    job.run()
    job.edit(text, {"checkpointing: {": "checkpointing: {aligned_timeout: 1ms, "})
    assert job.run().in_flight_bytes > 0, "the savepoint is to hold rows in flight"

    made = milepost("savepoint", "create", job.spec_path, "--name", "middle", "--json").document()
    moved = tmp_path / "archive" / "2026"
    shutil.move(made["location"].removeprefix("file://"), moved)
    shutil.rmtree(tmp_path / "store")
    shutil.move(tmp_path / "lake", tmp_path / "gone")

    started = milepost("start", second.spec_path, "--from", f"file://{moved}", "--claim")
    assert started.exit_code == 0, started.stderr
    wording.matches("start", started.stdout, replace=wording.SIZES)
    assert not (moved / "savepoint.json").exists()
    second.run_until_caught_up()
    epochs = [[key_of(1)], [key_of(2)], *second.epochs()]
    assert [len(epoch) for epoch in epochs[:4]] == [1, 1, 1, 2]
    context = JobContext(second.load())
    expected = expected_tables(context.spec, open_store(context.source("flights")[0]), epochs)
    for name in SINKS:
        assert_same_rows(second.master().reports.read(name), expected.tables[name], name)
    assert milepost("verify", second.spec_path, "--deep").exit_code == 0
    assert milepost("fsck", second.spec_path).exit_code == 0
