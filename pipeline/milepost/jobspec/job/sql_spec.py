"""`sql` of a job: the name of a SQL file, or models of a dbt project."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from milepost.language import Many, SpecModel
from milepost.operators.base import distinct

TAG = "tag:"
_SELECTOR = re.compile(r"(tag:)?[\w.-]+")


def _relative_file(suffix: str, what: str) -> AfterValidator:
    def check(name: str) -> str:
        if not name.endswith(suffix) or name.startswith("/") or "\0" in name or "${" in name:
            raise ValueError(f"expected the name of {what}, relative to the spec, got {name!r}")
        return name

    return AfterValidator(check)


def _selector(text: str) -> str:
    if not _SELECTOR.fullmatch(text):
        raise ValueError(
            f"expected tag:NAME or the name of a model, got {text!r}; other selectors of dbt are not available"
        )
    return text


def listed(value: object) -> object:
    """Return a text as a list of one, and any other value as it is."""
    return (value,) if isinstance(value, str) else value


class DbtSpec(SpecModel):
    """Models of a dbt project as the statements of a job.

    Attributes:
        dbt: the manifest that `dbt compile` writes, relative to the spec, such as ../shop/target/manifest.json.
        select: `tag:NAME` or the name of a model, or a list of them. A model is one statement, however many match it.
    """

    dbt: Annotated[str, _relative_file(".json", "a manifest.json of dbt")]
    select: Annotated[
        Many[Annotated[str, AfterValidator(_selector)]],
        BeforeValidator(listed),
        Field(min_length=1),
        AfterValidator(distinct),
    ]


AnySql = Annotated[
    Annotated[str, _relative_file(".sql", "a .sql file"), Tag("file")] | Annotated[DbtSpec, Tag("dbt")],
    Discriminator(lambda value: "file" if isinstance(value, str) else "dbt"),
]
"""The name of a SQL file, or models of dbt."""

CompiledFile = Annotated[str, _relative_file(".compiled", "a compiled spec, which ends in .compiled")]
"""The name of a file with a compiled spec. It has no suffix of a spec, because it is not a job of its own."""
