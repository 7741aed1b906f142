"""Sources that a user's Python class reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from milepost.jobspec.job.sources.landed_source import LandedSourceSpec, LandRules
from milepost.language import ColumnName, Function, Size, Text, Type


class PythonLandLimits(LandRules):
    """When the source is landed, and the limit that its class gets. Without one it gets its own default limit.

    Only a class with `latestOffset(start, limit)` takes a limit, and it keeps to it by itself.

    Attributes:
        max_rows: maximum number of rows per record, as `ReadMaxRows`. null: not limited.
        max_bytes: maximum size per record, by the class's own measure, as `ReadMaxBytes`. null: not limited. One limit
            may be given.
    """

    max_rows: Annotated[int, Field(ge=1)] | None = None
    max_bytes: Annotated[Size, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _check_one_limit(self) -> Self:
        if self.max_rows is not None and self.max_bytes is not None:
            raise ValueError("expected `max_rows` or `max_bytes`, got both: PySpark's API takes one limit")
        return self


class PythonSourceSpec(LandedSourceSpec):
    """Rows that a user's class reads: a `DataSource` of PySpark's Python API with a stream reader.

    Attributes:
        format: always python.
        source: `module:Class`. The module is in the spec's folder or installed.
        options: options that are passed to the class. `${env:…}` is allowed, and required for a secret.
        columns: the columns of the rows, by name. The class must produce all of them, with these types. The order
            matters: a new table has its columns in this order, and it breaks ties between rows.
        land: how the source is landed.
    """

    format: Literal["python"]
    source: Function
    options: dict[Text, str] = Field(default_factory=dict)
    columns: Annotated[dict[ColumnName, Type], Field(alias="schema", min_length=1)]
    land: PythonLandLimits = PythonLandLimits()

    @property
    def identity(self) -> dict[str, str]:
        return {"format": self.format, "source": self.source}

    @property
    def location(self) -> str:
        return self.source

    @property
    def dataset(self) -> tuple[str, str]:
        module, _, name = self.source.partition(":")
        return f"python://{module}", name

    @property
    def connection_texts(self) -> dict[tuple[str, ...], str]:
        return {("options", name): text for name, text in self.options.items()}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        return self.model_copy(update={"options": {name: texts["options", name] for name in self.options}})
