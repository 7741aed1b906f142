"""Sources that a dlt resource reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from milepost.jobspec.job.sources.landed_source import LandedSourceSpec, LandRules
from milepost.language import ColumnName, Function, Type

_UNCUT = (
    "is not for a dlt resource: it is read to its end, because dlt's cursor may be past rows that were not read yet; "
    "limit the resource itself, by the range of its cursor"
)


class DltLandRules(LandRules):
    """How a dlt resource is landed: each landing reads it to its end, and appends one record."""

    refused_keys: ClassVar[Mapping[str, str]] = {"max_rows": _UNCUT, "max_bytes": _UNCUT}


class DltSourceSpec(LandedSourceSpec):
    """Rows that a dlt resource reads: a REST API, a SaaS product or a database.

    Attributes:
        format: always dlt.
        resource: `module:name` of a dlt resource, or of a function without required arguments that returns one. The
            module is in the spec's folder or installed.
        columns: the columns of the rows, by the names that dlt gives them (snake_case). A column that dlt has no value
            for is null, and columns that are not declared are ignored. Nested values are JSON texts. The order matters:
            a new table has its columns in this order, and it breaks ties between rows.
        land: how the source is landed.
    """

    format: Literal["dlt"]
    resource: Function
    columns: Annotated[dict[ColumnName, Type], Field(alias="schema", min_length=1)]
    land: DltLandRules = DltLandRules()

    @property
    def identity(self) -> dict[str, str]:
        return {"format": self.format, "resource": self.resource}

    @property
    def location(self) -> str:
        return self.resource

    @property
    def dataset(self) -> tuple[str, str]:
        module, _, name = self.resource.partition(":")
        return f"dlt://{module}", name
