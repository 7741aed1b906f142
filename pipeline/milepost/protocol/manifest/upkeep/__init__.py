"""Transitions after the commit point: confirmation, subsumption, garbage, savepoints, pins, compaction."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.manifest.upkeep.collection import MAX_LISTED as MAX_LISTED
    from milepost.protocol.manifest.upkeep.compaction import compactable as compactable
    from milepost.protocol.manifest.upkeep.compaction import horizon as horizon
    from milepost.protocol.manifest.upkeep.floors import holds_every_floor as holds_every_floor
    from milepost.protocol.manifest.upkeep.garbage import MAX_STATE_ENTRIES as MAX_STATE_ENTRIES
    from milepost.protocol.manifest.upkeep.garbage import listable as listable
    from milepost.protocol.manifest.upkeep.garbage import plan_fold as plan_fold
    from milepost.protocol.manifest.upkeep.pins import without_expired_pins as without_expired_pins
else:
    __getattr__, __dir__ = lazy_exports(__name__)
