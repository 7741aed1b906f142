"""Which act switched the live timeline, as the detail of its event begins."""

from __future__ import annotations

from enum import StrEnum

from milepost.protocol.manifest.transaction import SwitchKind, TimelineSwitched


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
"""How the detail begins. A rollback and a migration have the detail of who decided on them."""


def switch_detail(act: SwitchAct, source: str, decided_by: str) -> str:
    """Return the detail of a switch: `started from checkpoint 3; ben (command line): milepost start`."""
    return f"{_BEGINNINGS[act]} {source}; {decided_by}"


def act_of(event: TimelineSwitched) -> SwitchAct:
    """Return the act that switched the timeline."""
    for act, beginning in _BEGINNINGS.items():
        if event.detail.startswith(beginning):
            return act
    return SwitchAct.ROLLBACK if event.kind is SwitchKind.ROLLBACK else SwitchAct.MIGRATION
