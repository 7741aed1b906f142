"""A job is opened when a command needs it: what its job master imports is not loaded before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.jobmaster.jobmaster import JobMaster


def open_job(job: str) -> JobMaster:
    """Return the job master of a spec file, or of a name under config/."""
    from milepost.jobmaster.jobmaster import JobMaster
    from milepost.spec.load.load import load_job

    return JobMaster(load_job(job))
