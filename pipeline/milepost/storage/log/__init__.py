"""The manifest log, the single commit point of a job, and the logs of landed sources."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.storage.log.manifest_log import Decide as Decide
    from milepost.storage.log.manifest_log import ManifestLog as ManifestLog
    from milepost.storage.log.records import Head as Head
    from milepost.storage.log.records import LandedTransition as LandedTransition
    from milepost.storage.log.source_log import SourceLog as SourceLog
    from milepost.storage.log.source_log import stored_logs as stored_logs
else:
    __getattr__, __dir__ = lazy_exports(__name__)
