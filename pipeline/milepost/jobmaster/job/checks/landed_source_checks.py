"""Refuse what is not available for a job with landed sources."""

from __future__ import annotations

from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext


def require_no_landed_source(context: JobContext, use: str) -> None:
    """Raise InvalidRequest if the job has a landed source. use: what is refused, for the message."""
    if landed := context.spec.landed:
        raise InvalidRequest(
            f"job {context.spec.name}: {use} is not available in this version for a job with landed sources "
            f"({', '.join(landed)}). Nothing was changed.",
            sources=list(landed),
        )
