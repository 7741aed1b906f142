"""What the specs of landed sources share: when they are landed, and how many records of the log an epoch reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from milepost.jobspec.job.sources.source_spec import ObjectLayout, SourceSpec
from milepost.language import Duration, NodeName, PositiveDuration, Size, SpecModel


class LandedEpochLimits(SpecModel):
    """Limits on the input of one epoch. An epoch always takes whole records of the log, and at least one.

    Attributes:
        max_records: maximum number of records per epoch.
        max_rows: maximum number of their rows. null: no limit.
        max_bytes: maximum total size of their objects as stored. null: no limit.
    """

    max_records: Annotated[int, Field(ge=1)] = 1000
    max_rows: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[Size, Field(ge=1)] | None = None


class LandRules(SpecModel):
    """How a source is landed.

    Attributes:
        every: how often Airflow lands the source, in a DAG of its own. null: before each epoch, by the epoch's DAG.
        retain: landed records are retained for at least this time, and for as long as a retained checkpoint reads from
            them. 0s: only what checkpoints need.
    """

    every: PositiveDuration | None = None
    retain: Duration = timedelta(days=7)


class LandedSourceSpec(SourceSpec):
    """Rows of an external system, which a landing appends to the source's log in the job's storage.

    Attributes:
        renamed_from: the name under which earlier checkpoints have read the source. It continues its log.
        limits_per_epoch: limits on the input of one epoch.
        land: how the source is landed.
    """

    is_landed: ClassVar[bool] = True

    renamed_from: NodeName | None = None
    limits_per_epoch: LandedEpochLimits = LandedEpochLimits()
    land: LandRules = LandRules()

    @property
    def layout(self) -> ObjectLayout:
        """A landed object has every column that was declared then. One that was declared later reads as null."""
        return ObjectLayout(
            "parquet", optional_columns=tuple(name for name in self.columns if name != self.time_column)
        )
