"""All acts."""

from __future__ import annotations

from typing import Any

from milepost.acts.act import Act
from milepost.acts.backfill import BACKFILL
from milepost.acts.landing import LAND
from milepost.acts.lifecycle import ABORT, CANCEL, RESUME, START
from milepost.acts.rollback import ROLLBACK
from milepost.acts.savepoints import CREATE, DISPOSE
from milepost.acts.upkeep import FSCK, GC, REALIGN, VERIFY

ACTS: dict[str, Act[Any]] = {
    act.name: act
    for act in (ROLLBACK, BACKFILL, CREATE, DISPOSE, RESUME, CANCEL, START, ABORT, LAND, REALIGN, VERIFY, FSCK, GC)
}
"""The acts by name, in the order of the form."""
