"""State sizes are those of the head, growth is since the oldest retained checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.jobmaster.reports.tables import state_sizes
from milepost.jobmaster.reports.tables.state_sizes import MIN_SPAN_MS
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.retention.ancestry import timeline_ancestry
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob


def test_before_the_first_epoch_there_are_no_sizes(tmp_path: Path) -> None:
    assert BackfillJob.create(tmp_path, 0).master.reports.state_sizes() == {}


@pytest.mark.deep
def test_rows_and_bytes_are_those_of_the_head(tmp_path: Path) -> None:
    job = BackfillJob.create(tmp_path, 4)
    (size,) = job.master.reports.state_sizes().values()
    assert size.rows == job.table().num_rows and size.checkpoint_id == 4
    handles = job.small.context.metadata(job.state.checkpoints[-1]).operators["latest"].handles
    assert size.bytes == sum(handle.full_bytes for handle in handles) > 0
    assert size.rows_per_day is None, "epochs of one minute say nothing of a day"


@pytest.mark.deep
def test_growth_is_measured_from_the_oldest_retained_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = BackfillJob.create(tmp_path, 5)

    def apart(*given: object) -> tuple[CompletedCheckpoint, ...]:
        found = timeline_ancestry(*given)  # type: ignore[arg-type]
        return tuple(replace(one, trigger_time_ms=int(one.checkpoint_id) * MIN_SPAN_MS // 4) for one in found)

    monkeypatch.setattr(state_sizes, "timeline_ancestry", apart)
    size = job.master.reports.state_sizes()["latest"]
    first = job.small.context.metadata(job.state.checkpoints[0]).operators["latest"]
    before = sum(handle.live_rows for handle in first.handles)
    assert size.rows > before
    assert size.rows_per_day == (size.rows - before) * 24, "in one hour"


def test_a_renamed_operator_keeps_its_size(tmp_path: Path) -> None:
    job = BackfillJob.create(tmp_path, 2)
    size = job.master.reports.state_sizes()["latest"]
    job.edit("uid: latest,", "uid: newest, renamed_from: latest,")
    job.edit("input: latest,", "input: newest,")
    assert job.master.reports.state_sizes() == {"newest": size}
