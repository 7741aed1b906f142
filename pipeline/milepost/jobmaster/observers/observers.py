"""The observers of an opened job hear of every transition that this process makes."""

from __future__ import annotations

import logging

from milepost.extras import install_command, missing_libraries
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.observers.delivery import Delivery
from milepost.openlineage.settings import LineageSettings

_LOG = logging.getLogger(__name__)


def observe(context: JobContext, lineage: LineageSettings) -> Delivery | None:
    """Let who is configured hear of the job from now on. None: nobody can."""
    if missing_libraries("lineage"):
        _LOG.warning("OpenLineage is configured, and no event is sent: %s is missing", install_command("lineage"))
        return None
    from milepost.jobmaster.observers.lineage import LineageObserver

    delivery = Delivery(LineageObserver(context, lineage), "OpenLineage")
    context.listeners.append(delivery)
    return delivery
