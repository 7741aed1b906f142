"""All acts."""

from __future__ import annotations

from typing import Any

from milepost.acts.act import Act
from milepost.acts.backfill import BACKFILL
from milepost.acts.landing import LAND
from milepost.acts.lifecycle import ABORT, CANCEL, RESUME, START
from milepost.acts.quarantine import QUARANTINE, RELEASE
from milepost.acts.rollback import ROLLBACK
from milepost.acts.savepoints import CREATE, DISPOSE
from milepost.acts.upkeep import FSCK, GC, REALIGN, VERIFY
from milepost.acts.why import WHY

_IN_ORDER: tuple[Act[Any], ...] = (
    ROLLBACK, BACKFILL, CREATE, DISPOSE, RESUME, CANCEL, START, ABORT, LAND, QUARANTINE, RELEASE, REALIGN, WHY,
    VERIFY, FSCK, GC,
)  # fmt: skip

ACTS: dict[str, Act[Any]] = {act.name: act for act in _IN_ORDER}
"""The acts by name, in the order of the form."""
