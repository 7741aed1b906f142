"""Sources that are Delta tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from milepost.jobspec.job.sources.table_source import TableSourceSpec
from milepost.language import Text


class DeltaSourceSpec(TableSourceSpec):
    """Rows that are appended to a Delta table. A commit that deletes or updates rows stops the landing.

    Attributes:
        format: always delta.
        path: location of the table: an S3 or file URL, or a path relative to the spec. `${env:…}` is allowed.
        start: where the log begins. It cannot be changed later. earliest: with all rows of the table as it is at the
            first landing, then every commit. latest: with the first commit after the first landing. A number: with the
            commit of that version. A time: with the first commit at or after it.
    """

    format: Literal["delta"]
    path: Text

    @property
    def location(self) -> str:
        return self.path

    @property
    def connection_texts(self) -> dict[tuple[str, ...], str]:
        return {("path",): self.path}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        return self.model_copy(update={"path": texts["path",]})
