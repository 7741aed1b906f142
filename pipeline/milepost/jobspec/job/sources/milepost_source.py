"""Sources that are the published tables of other Milepost jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from milepost.jobspec.job.sources.table_source import TableLandLimits, TableSourceSpec
from milepost.language import Text


class CopiedLandLimits(TableLandLimits):
    """When the table of another job is landed, and limits on what a landing appends to the log as one record.

    Attributes:
        by: copy: the rows are read once and written into the source's log, so the other job may delete its files.
    """

    unavailable_values: ClassVar[Mapping[str, frozenset[str]]] = {"by": frozenset({"reference"})}

    by: Literal["copy"] = "copy"


class MilepostSourceSpec(TableSourceSpec):
    """Rows that are appended to the published table of another job: a sink with `format: parquet`, in mode append or
    changelog.

    Attributes:
        format: always milepost.
        path: location of the table, as in the sink of the other job: an S3 or file URL, or a path relative to the spec.
            `${env:…}` is allowed.
        storage: `storage` of the other job, which has its marks. null: the `storage` of this job.
        start: where the log begins. It cannot be changed later. earliest: with all rows of the table as it is at the
            first landing, then what is appended. latest: with what is appended after the first landing.
        land: how the source is landed.
    """

    format: Literal["milepost"]
    path: Text
    storage: Text | None = None
    start: Literal["earliest", "latest"] = "earliest"
    land: CopiedLandLimits = CopiedLandLimits()

    @property
    def location(self) -> str:
        return self.path

    @property
    def connection_texts(self) -> dict[tuple[str, ...], str]:
        texts = {"path": self.path, "storage": self.storage}
        return {(key,): text for key, text in texts.items() if text is not None}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        return self.model_copy(update={path[0]: text for path, text in texts.items()})
