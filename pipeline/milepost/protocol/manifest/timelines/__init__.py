"""Timelines and incarnations: leaders, forks, switches of the live timeline, and ends."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.manifest.timelines.incarnation import JobPhase as JobPhase
    from milepost.protocol.manifest.timelines.incarnation import dirty_results as dirty_results
    from milepost.protocol.manifest.timelines.incarnation import job_phase as job_phase
    from milepost.protocol.manifest.timelines.incarnation import result_of as result_of
else:
    __getattr__, __dir__ = lazy_exports(__name__)
