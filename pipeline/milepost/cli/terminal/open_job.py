"""A job is opened when a command needs it: what its job master imports is not loaded before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.jobmaster.jobmaster import JobMaster


def open_job(job: str, *, ahead: bool = False) -> JobMaster:
    """Return the job master of a spec file, or of a name under config/.

    Args:
        ahead: the command begins with the head: it is on its way while the rest is imported.
    """
    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.jobspec.load.load import load_job

    master = JobMaster(load_job(job))
    if ahead:
        master.look_ahead()
    return master


def checkpoint_at(master: JobMaster, at: str | None) -> int | None:
    """Return the checkpoint that `--at` means: an id as it is, a time as `rollback --to` takes it; None for the head.

    Raises: NotFound, InvalidRequest.
    """
    if at is None or at.strip().isdecimal():
        return None if at is None else int(at)
    return master.rollback_target(at)
