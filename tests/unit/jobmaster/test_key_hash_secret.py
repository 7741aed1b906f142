"""The secret of the key hash accompanies the state everywhere, and is never shown (DESIGN 5)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import StateCorrupt
from milepost.jobmaster import Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.tables.state_rows import StateSide, check_rows
from milepost.protocol.log.log_entries import LogEntry
from milepost.state.layers.key_hash import KeyHash, new_secret
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob, moved


def secret_of(context: JobContext) -> str:
    return context.head().state.key_hash_secret


def head_metadata(context: JobContext) -> CheckpointMetadata:
    state = context.head().state
    metadata = context.base_metadata(state, state.timeline().head)
    assert metadata is not None
    return metadata


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("keyed"), 2)
    job.land([3, 4])
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


@pytest.mark.deep
def test_a_job_has_a_secret_from_its_first_version_on_and_hashes_its_state_with_it(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path, 0)
    job.land([1, 2])
    context = job.small.context
    job.small.trigger(Session.cli())
    *_, first = context.log.entries()  # which the first epoch compacts
    assert isinstance(first, LogEntry) and first.version == 1
    job.master.lifecycle.abort_running()
    job.run(2)
    assert first.state.key_hash_secret == secret_of(context)
    assert head_metadata(context).hasher == KeyHash(secret_of(context))
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_job_that_starts_from_a_savepoint_goes_on_with_its_secret(job: CountedJob, tmp_path: Path) -> None:
    """And another one that starts from nothing has another."""
    location = moved(job.master.savepoints.create("two"), tmp_path / "away")
    assert new_secret() == secret_of(job.small.context)  # tests draw from one seed: the next one is another
    other = OtherJob.beside(job)
    other.master.restores.start(location)
    other.run(2)
    job.run(2)
    other.assert_equals(job)
    assert head_metadata(other.context).hasher == KeyHash(secret_of(job.small.context))
    assert secret_of(other.context) != secret_of(job.small.context)


def test_state_that_was_not_hashed_as_its_checkpoint_says_is_refused(job: CountedJob) -> None:
    """It shows as rows that are not where their hash says."""
    context = job.small.context
    metadata = head_metadata(context)
    table = metadata.state_tables["latest"]
    with wording.raises(StateCorrupt) as refused:
        check_rows(context.store, StateSide(replace(metadata, hasher=KeyHash("0" * 32)), table))
    assert secret_of(context) not in str(refused.value)


@pytest.mark.long
def test_the_secret_is_never_disclosed(job: CountedJob, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is in the manifest, in `_metadata` and in copies of that, and in nothing that is shown or logged."""
    caplog.set_level(logging.DEBUG)
    spec, context = job.spec_path, job.small.context
    secret = secret_of(context)
    job.master.savepoints.create("two")
    state = tmp_path / "state.csv"
    told = [
        milepost(*command, spec, *words, *flags)
        for command, *words in (
            (("status",),),
            (("list",),),
            (("show",), "2"),
            (("history",),),
            (("verify",), "--deep"),
            (("fsck",),),
            (("gc",), "--dry-run"),
            (("diff",), "1", "2"),
            (("state",), "latest"),
            (("read",), "table"),
            (("savepoint", "list"),),
            (("rollback",), "--to", "1", "--dry-run"),
        )
        for flags in ((), ("--json",), ("-v",))
    ]
    assert [one.exit_code for one in told] == [0] * len(told)
    milepost("state", spec, "latest", "--stored", "--format", "csv", "--output", state)
    job.run(2)
    shown = "".join(one.stdout + one.stderr for one in told) + caplog.text + state.read_text()
    shown += repr(context.head()) + repr(head_metadata(context)) + repr(list(context.log.entries()))
    assert secret not in shown and "small" in shown
    folders = {path.relative_to(job.small.folder) for path in job.small.folder.rglob("*") if path.is_file()}
    holds = [str(path) for path in folders if secret.encode() in (job.small.folder / path).read_bytes()]
    assert holds and all("/manifest/" in path or path.endswith("_metadata") for path in holds)
