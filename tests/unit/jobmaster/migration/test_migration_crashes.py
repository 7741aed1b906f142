"""A migration that is killed after any of its writes: the old table, or the new one, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.errors import CheckpointError, CommitConflict
from milepost.protocol.manifest.transaction.requests import ThawRequest
from milepost.protocol.records.ids import SessionId
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.migrating_job import MigratingJob, delta
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.job_stores import hook_stores

pytestmark = pytest.mark.long

EPOCHS = 3


class Killed(BaseException):
    """The process ends here: nothing of it catches this, and what it would do on its way out fails as well."""


@pytest.fixture(scope="module", params=[pytest.param("seen", marks=pytest.mark.deep), "table"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, MigratingJob]:
    """A sink, and a job of three epochs. Only to be copied."""
    job = MigratingJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", EPOCHS)
    job.land(range(EPOCHS + 1, 8))
    return request.param, job


def writes_of(act: Callable[[], object], *, die_after: int | None = None, before: bool = False) -> list[str]:
    """Do it, and return the keys that were written; dead from the write `die_after` on, which landed or did not."""
    written: list[str] = []

    def hook(operation: str, key: str) -> None:
        if operation in WRITES:
            written.append(key)
            if die_after is not None and len(written) >= die_after:
                raise Killed

    with pytest.MonkeyPatch.context() as patch:
        hook_stores(patch, before=hook if before else None, after=None if before else hook)
        if die_after is None:
            act()
        else:
            with pytest.raises(Killed):
                act()
    return written


@pytest.mark.parametrize(
    ("before", "every"),
    [
        pytest.param(False, False, id="landed, around the switch"),
        pytest.param(False, True, id="landed", marks=pytest.mark.deep),
        pytest.param(True, True, id="not landed", marks=pytest.mark.deep),
    ],
)
def test_killed_at_any_of_its_writes_it_is_done_again_or_the_old_table_goes_on(
    prepared: tuple[str, MigratingJob], tmp_path: Path, before: bool, every: bool
) -> None:
    sink, whole = prepared[0], prepared[1].copy_to(tmp_path / "whole")
    written = writes_of(lambda: whole.migrate(sink))
    switch = max(index for index, key in enumerate(written) if key.startswith(f"sinks/{sink}/marks/"))
    assert any(key.startswith("_milepost/data/") for key in written[:switch])
    # The last write is the fact that the last sink has followed; before its first one only the old table can be seen.
    last = len(written)
    for count in range(1, last + 1) if every else sorted({1, 2, switch, switch + 1, last}):
        job = prepared[1].copy_to(tmp_path / f"{count}")
        writes_of(lambda job=job: job.migrate(sink), die_after=count, before=before)  # type: ignore[misc]
        switched = address(job, sink).format == "delta"
        job.assert_tables_equal_the_oracle() if not job.master.reports.status().reconciling else None
        again = count % 2 == 0
        if again or switched:
            plan = job.master.migrations.plan(sink, delta(sink))
            assert plan.done is switched
            job.master.migrations.run(plan)
            job.say(sink)
        else:  # nobody tries again: the freeze that is left ends by itself
            job.small.context.transact(ThawRequest(SessionId("migrate-table")))
        assert (address(job, sink).format == "delta") is (again or switched)
        job.run(2)
        job.assert_whole()
        if before or count in (1, switch, switch + 1, last):  # else it differs in who finishes it alone
            job.rollback(EPOCHS - 1)
            job.assert_whole()


def address(job: MigratingJob, sink: str):  # type: ignore[no-untyped-def]
    context = job.small.context
    head = context.head().state.head()
    assert head is not None
    return context.metadata(head).tables[sink].address


def test_a_head_that_moves_meanwhile_leaves_the_old_table_in_force(
    prepared: tuple[str, MigratingJob], tmp_path: Path
) -> None:
    """The freeze had ended before the switch: what was staged is discarded, and the same command goes on."""
    sink, job = prepared[0], prepared[1].copy_to(tmp_path / "job")
    ran: list[str] = []

    def meanwhile(operation: str, key: str) -> None:
        if operation == "put" and key.endswith("/_metadata") and not ran:
            ran.append(key)
            job.small.context.transact(ThawRequest(SessionId("migrate-table")))
            job.run()

    with pytest.MonkeyPatch.context() as patch:
        hook_stores(patch, before=meanwhile)
        with pytest.raises(CommitConflict):
            job.migrate(sink)
    assert ran and address(job, sink).format == "parquet"
    job.assert_whole()
    job.migrate(sink)
    job.say(sink)
    job.run()
    job.assert_whole()


def test_a_failure_before_the_switch_discards_staged_files(prepared: tuple[str, MigratingJob], tmp_path: Path) -> None:
    sink, job = prepared[0], prepared[1].copy_to(tmp_path / "job")

    def fail(operation: str, key: str) -> None:
        if operation == "put" and key.endswith("/_metadata"):
            raise CommitConflict("planned")

    with pytest.MonkeyPatch.context() as patch:
        hook_stores(patch, before=fail)
        with wording.raises(CheckpointError):
            job.migrate(sink)
    assert not list((job.lake(sink) / "_milepost" / "data").rglob("*.parquet"))
    job.run()
    job.assert_whole()
