"""Sources that are Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from milepost.jobspec.job.catalog_spec import CatalogSpec, QualifiedName
from milepost.jobspec.job.sources.table_source import TableSourceSpec
from milepost.language import Text

_OPTIONS = ("catalog", "options")


class IcebergSourceSpec(TableSourceSpec):
    """Rows that are appended to an Iceberg table. A snapshot that deletes or overwrites rows stops the landing.

    Attributes:
        format: always iceberg.
        catalog: the catalog of the table.
        table: name of the table in its catalog, `namespace.name`. The connection of `store` reaches its files.
        branch: the branch to read.
        start: where the log begins. It cannot be changed later. earliest: with all rows of the table as it is at the
            first landing, then every snapshot. latest: with the first snapshot after the first landing. A number: with
            the snapshot of that id. A time: with the first snapshot at or after it.
    """

    format: Literal["iceberg"]
    catalog: CatalogSpec
    table: QualifiedName
    branch: Text = "main"

    @property
    def identity(self) -> dict[str, str]:
        return {**super().identity, "branch": self.branch}

    @property
    def location(self) -> str:
        return f"iceberg:{self.table}"

    @property
    def connection_texts(self) -> dict[tuple[str, ...], str]:
        texts: dict[tuple[str, ...], str] = {("catalog", "uri"): self.catalog.uri}
        return texts | {(*_OPTIONS, name): text for name, text in self.catalog.options.items()}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        options = {name: texts[(*_OPTIONS, name)] for name in self.catalog.options}
        catalog = self.catalog.model_copy(update={"uri": texts["catalog", "uri"], "options": options})
        return self.model_copy(update={"catalog": catalog})
