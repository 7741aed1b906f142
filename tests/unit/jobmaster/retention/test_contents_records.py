"""Records that the contents of a kept checkpoint are folded from stay as long as it is kept (I8, TABLES 1.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.tables.records import contents
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.job_stores import later

DAY_MS = 24 * 3_600_000


@pytest.mark.long
@pytest.mark.parametrize("max_records", [4, pytest.param(contents.MAX_RECORDS, marks=pytest.mark.deep)])
def test_retained_checkpoints_stay_readable_whatever_is_subsumed_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_records: int
) -> None:
    """All between a savepoint's checkpoint and the head is subsumed and collected, over more than two foldings."""
    monkeypatch.setattr(contents, "MAX_RECORDS", max_records)
    epochs = 2 * max_records + 3
    job = CountedJob.with_epochs(tmp_path / "job", 3, {"last: 20": "last: 1"})
    job.master.savepoints.create("old")
    before = job.master.reports.read("seen", at=3)
    job.land(range(4, epochs + 1))
    job.run(epochs - 3)
    context = job.small.context
    with pytest.MonkeyPatch.context() as clock:
        for days in (1, 2):
            later(clock, days * DAY_MS)
            job.master.collect_garbage()
    state = context.head().state
    assert [int(one.checkpoint_id) for one in state.checkpoints] == [3, epochs]
    tables = [context.metadata(one).tables["seen"] for one in state.checkpoints]
    assert all(1 <= len(table.records) <= max_records for table in tables)
    kept = {record.key for table in tables for record in table.records}
    stored = {stat.key for stat in context.store.list("chk-") if "/contents/seen-" in stat.key}
    assert stored == kept, "of the epochs between nothing is left but what these two need"
    assert (
        verified := job.master.reports.verify(deep=True)
    ).unasked == verified.discarded == () and job.master.reports.fsck().exit_code == 0
    assert job.master.reports.read("seen", at=3).equals(before)
    (changed,) = [one for one in job.master.reports.diff(3, epochs) if (one.kind, one.name) == ("sink", "seen")]
    assert changed.changes.table.num_rows == 3 * (epochs - 3)
    job.rollback(3)
    job.assert_tables_equal_the_oracle()
    job.run(2)
    job.assert_tables_equal_the_oracle()
