"""The `health` key: how old and how incomplete a job's tables may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from milepost.language import PositiveDuration, SpecModel

Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=False)]


class HealthSpec(SpecModel):
    """Bounds that `status`, the Checkpoints page and the metrics apply. Without a bound, the job's own past decides.

    Attributes:
        max_age: how old the event time may be up to which the tables are complete. null: twice the greatest age that
            the past epochs left, once these are 20 epochs of a day.
        max_late_ratio: share of late rows, 0 to 1, in the rows of an epoch or of an hour. null: 0.01, or three times
            the usual share if that is more, but at most 0.1.
        max_dropped_ratio: share of late rows that no sink publishes. null: 0.001, or three times the usual share, but
            at most 0.1.
        max_bad_ratio: share of unreadable records. null: as for late rows.
        max_rejected_ratio: share of the rows judged by row rules (`on_fail` in `quality`) that they refuse. null: as
            for late rows.
    """

    max_age: PositiveDuration | None = None
    max_late_ratio: Ratio | None = None
    max_dropped_ratio: Ratio | None = None
    max_bad_ratio: Ratio | None = None
    max_rejected_ratio: Ratio | None = None
