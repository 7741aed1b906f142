"""If the response to a commit of table properties is lost, the epoch is retried and the job continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import CommitOutcomeUnknown
from milepost.jobmaster import CheckpointDetails, Session
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec


@pytest.mark.parametrize("landed", [False, True])
def test_a_lost_response_to_a_properties_commit_does_not_fail_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """Rule: an unanswered conditional write costs the session one try, like any fault of a store."""
    job = SparklessJob.create(tmp_path, {"format: parquet": "format: delta"})
    job.land("1.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    edit_spec(tmp_path / "config" / "small.yaml", {"timeout: 10m": "timeout: 400h"})
    job.land("2.csv")
    create, lost, session = LocalStore.create, list[str](), Session.cli()

    def losing(store: LocalStore, key: str, body: bytes) -> object:
        if not key.startswith("_delta_log/") or lost:
            return create(store, key, body)
        lost.append(key)
        if landed:
            create(store, key, body)
        raise CommitOutcomeUnknown(f"it is unknown whether {key} was written.")

    monkeypatch.setattr(LocalStore, "create", losing)
    if not landed:
        with wording.raises(CommitOutcomeUnknown):
            job.master.epochs.run(session, SparklessRunner())
    assert isinstance(job.master.epochs.run(session, SparklessRunner()), CheckpointDetails)
    assert lost and job.master.reports.read("table").to_pylist() == [{"k": 1, "rows": 2}]
