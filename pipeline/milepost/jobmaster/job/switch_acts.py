"""Which act switched the live timeline, as its event says."""

from __future__ import annotations

from enum import StrEnum

from milepost.protocol.manifest.transaction import SwitchKind, TimelineSwitched
from milepost.protocol.records import Decision


class SwitchAct(StrEnum):
    """An act that makes another timeline the live one."""

    ROLLBACK = "rollback"
    BACKFILL = "backfill"
    START = "start"
    RESTORE = "restore"
    BOOTSTRAP = "bootstrap"
    MIGRATION = "migration"


_BEGINNINGS = {
    SwitchAct.BACKFILL: "backfill",
    SwitchAct.START: "started from",
    SwitchAct.RESTORE: "restored from",
    SwitchAct.BOOTSTRAP: "bootstrapped from",
}
"""How the reason of a switch begins. A rollback and a migration have the reason of who decided on them."""


def switch_decision(act: SwitchAct, source: str, decision: Decision) -> Decision:
    """Return the decision on a switch. Its reason: `started from checkpoint 3; milepost start --from 3`."""
    why = f"{_BEGINNINGS[act]} {source}"
    return Decision(decision.actor, f"{why}; {decision.why}" if decision.why else why, act.value)


def act_of(event: TimelineSwitched) -> SwitchAct:
    """Return the act that switched the timeline. Events of earlier versions have it as the beginning of `detail`."""
    if event.decided_by is not None and event.decided_by.act:
        return SwitchAct(event.decided_by.act)
    if event.decided_by is None:
        for act, beginning in _BEGINNINGS.items():
            if event.detail.startswith(beginning):
                return act
    return SwitchAct.ROLLBACK if event.kind is SwitchKind.ROLLBACK else SwitchAct.MIGRATION
