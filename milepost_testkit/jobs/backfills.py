"""Backfill a job without a person between the plan and the act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.epoch import EpochRunner
from milepost.jobmaster import BackfillResult, JobMaster, Session


def back_fill(
    master: JobMaster,
    runner: EpochRunner,
    from_: str | None = None,
    *,
    session: Session | None = None,
    progress: Callable[[str], None] | None = None,
    **request: Any,
) -> BackfillResult:
    """Plan a backfill and carry it out immediately, in a new session unless one is given."""
    approved = master.backfills.plan(from_, **request).approved
    return master.backfills.run(session or Session.cli(), runner, approved, progress=progress)
