"""Register the configured observers of a job."""

from __future__ import annotations

import logging

from milepost.extras import install_command, missing_libraries
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.observers.delivery import Delivery
from milepost.openlineage import LineageSettings

_LOG = logging.getLogger(__name__)


def observe(context: JobContext, lineage: LineageSettings) -> Delivery | None:
    """Deliver the job's transitions to OpenLineage from now on. Returns None if its libraries are not installed."""
    if missing_libraries("lineage"):
        _LOG.warning("OpenLineage is configured, and no event is sent: %s is missing", install_command("lineage"))
        return None
    from milepost.jobmaster.observers.lineage import LineageObserver

    delivery = Delivery(LineageObserver(context, lineage), "OpenLineage")
    context.listeners.append(delivery)
    context.use_case_ends.callbacks.append(delivery.wait)
    return delivery
