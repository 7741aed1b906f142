"""Roll a job back without a person between the plan and the act."""

from __future__ import annotations

from typing import Any

from milepost.jobmaster import JobMaster, RollbackResult, Session
from milepost.protocol.records import Decision


def roll_back(master: JobMaster, to: int | str, session: Session | None = None, **options: Any) -> RollbackResult:
    """Plan a rollback and carry it out immediately, in a new session unless one is given."""
    return master.rollbacks.run(session or Session.cli(), master.rollbacks.plan(to).approved, **options)


def decided(why: str) -> Decision:
    """Return a decision of the user of this process."""
    return Session.cli().decision(why)
