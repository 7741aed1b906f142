"""Which checkpoints are retained, what they refer to, and what may be deleted (I8)."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.retention.ancestry import checkpoint_ancestry as checkpoint_ancestry
    from milepost.protocol.retention.ancestry import continues as continues
    from milepost.protocol.retention.ancestry import open_forks as open_forks
    from milepost.protocol.retention.ancestry import shared_checkpoint as shared_checkpoint
    from milepost.protocol.retention.ancestry import timeline_ancestry as timeline_ancestry
    from milepost.protocol.retention.handle_check import MISSING as MISSING
    from milepost.protocol.retention.handle_check import digest_fault as digest_fault
    from milepost.protocol.retention.handle_check import handle_fault as handle_fault
    from milepost.protocol.retention.pruning import is_scan_due as is_scan_due
    from milepost.protocol.retention.pruning import may_be_listed as may_be_listed
    from milepost.protocol.retention.pruning import may_prune as may_prune
    from milepost.protocol.retention.reach import CheckpointOutcome as CheckpointOutcome
    from milepost.protocol.retention.reach import GarbageKeys as GarbageKeys
    from milepost.protocol.retention.reach import ObjectStatus as ObjectStatus
    from milepost.protocol.retention.reach import object_status as object_status
    from milepost.protocol.retention.reach import proof as proof
    from milepost.protocol.retention.reach import published_proof as published_proof
    from milepost.protocol.retention.reach import published_status as published_status
    from milepost.protocol.retention.reach import staged_proof as staged_proof
    from milepost.protocol.retention.reach import staged_status as staged_status
    from milepost.protocol.retention.retention import RetentionPolicy as RetentionPolicy
    from milepost.protocol.retention.retention import collectable as collectable
    from milepost.protocol.retention.retention import collectable_lists as collectable_lists
    from milepost.protocol.retention.retention import deletable as deletable
    from milepost.protocol.retention.retention import deletable_lists as deletable_lists
    from milepost.protocol.retention.retention import handle_conflicts as handle_conflicts
    from milepost.protocol.retention.retention import is_discarded as is_discarded
    from milepost.protocol.retention.retention import minimum_grace_ms as minimum_grace_ms
    from milepost.protocol.retention.retention import root_in_job as root_in_job
    from milepost.protocol.retention.retention import subsumable as subsumable
    from milepost.protocol.retention.retention import unreferenced as unreferenced
    from milepost.protocol.retention.retention import veto_retention_ms as veto_retention_ms
else:
    __getattr__, __dir__ = lazy_exports(__name__)
