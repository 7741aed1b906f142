"""S3 and whatever speaks it: its store, its errors in our terms, and the proof that an endpoint can be trusted."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.storage.s3.access import s3_access as s3_access
    from milepost.storage.s3.probe import ProbeCheck as ProbeCheck
    from milepost.storage.s3.probe import first_answer as first_answer
    from milepost.storage.s3.probe import probe_store as probe_store
    from milepost.storage.s3.probe import probe_versioned_reads as probe_versioned_reads
    from milepost.storage.s3.probe import require_preconditions as require_preconditions
    from milepost.storage.s3.probe import require_versioned_reads as require_versioned_reads
    from milepost.storage.s3.queue import NewObjectsQueue as NewObjectsQueue
    from milepost.storage.s3.store import read_service_model as read_service_model
else:
    __getattr__, __dir__ = lazy_exports(__name__)
