"""`verify` reports which tables it did not check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.errors import StateCorrupt
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK, CountedJob


def test_a_table_that_the_changed_path_does_not_name_is_reported_and_not_counted(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path, 2)
    whole = job.master.reports.verify(deep=True)
    job.edit("path: ../lake/table", "path: ../lake/other")
    result = job.master.reports.verify(deep=True)
    assert (whole.unasked, result.objects) == ((), whole.objects - 2)
    (told,) = result.unasked
    wording.matches("verify", told)
    said = milepost("verify", str(job.spec_path))
    assert said.exit_code == 0
    wording.matches("verify", said.stdout)
    document = json.loads(milepost("verify", str(job.spec_path), "--json").stdout)
    assert document["data"]["unasked"] == [told]


@pytest.mark.deep
def test_a_table_of_a_dropped_sink_is_reported_and_is_no_damage(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path, 2)
    text = job.spec_path.read_text()
    job.edit(SEEN_SINK, "")
    (told,) = job.master.reports.verify(2).unasked
    wording.matches("verify", told)
    report = job.master.reports.fsck()
    assert report.exit_code == 0
    wording.matches("fsck", report.unasked)
    job.spec_path.write_text(text)
    assert (
        verified := job.master.reports.verify()
    ).unasked == verified.discarded == () and job.master.reports.fsck().unasked == ()


@pytest.mark.deep
def test_a_damaged_older_checkpoint_of_the_live_timeline_is_an_error(tmp_path: Path) -> None:
    """The job continues from its head, but cannot be rolled back to that checkpoint."""
    job = CountedJob.with_epochs(tmp_path, 3)
    (described,) = (tmp_path / "store" / "small").glob(f"chk-{2:020d}/*/_metadata")
    described.write_bytes(b"torn")
    with wording.raises(StateCorrupt):
        job.master.reports.verify()
