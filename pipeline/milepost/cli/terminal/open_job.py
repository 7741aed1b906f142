"""Open a job lazily, so that commands that fail early do not import the job master."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster


def open_job(job: str, *, ahead: bool = False) -> JobMaster:
    """Return the job master of a spec file, or of a name under config/.

    Args:
        ahead: prefetch the head while the remaining modules are imported.
    """
    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import load_job

    master = JobMaster(load_job(job))
    if ahead:
        master.prefetch_head()
    return master


def checkpoint_at(master: JobMaster, at: str | None) -> int | None:
    """Return the checkpoint id of `--at`; None for the head. A time means the same as in `rollback --to`.

    Raises: NotFound, InvalidRequest.
    """
    if at is None or at.strip().isdecimal():
        return None if at is None else int(at)
    return master.rollbacks.target(at)
