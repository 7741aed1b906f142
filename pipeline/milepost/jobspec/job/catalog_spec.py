"""The catalog of an Iceberg table, and names of tables in catalogs and databases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from milepost.language import SpecModel, Text

SIGNED = "rest.sigv4-enabled"
"""Option of a REST catalog to sign requests as AWS signs them."""


def is_on_aws(type_: str, options: Mapping[str, str]) -> bool:
    """Return whether a catalog is reached by the client of AWS, with the credentials and the region of `store`."""
    return type_ == "glue" or options.get(SIGNED) == "true"


class CatalogSpec(SpecModel):
    """The Iceberg catalog of a table. No setting is taken from the home folder or the environment.

    Attributes:
        type: rest: a server with Iceberg's REST protocol. sql: a database, SQLite or Postgres. glue: AWS Glue.
        uri: URI of the server, or SQLAlchemy URI of the database. A relative SQLite file is relative to the spec's
            folder. `${env:…}` is allowed, and required for a password. Of glue: an endpoint other than AWS's own.
        name: name of the catalog. In an sql catalog it is part of the table's key, so other engines must use the same
            name.
        options: other catalog options, named as in Iceberg's clients: `warehouse`, `prefix`, `token`, `credential`,
            `client.region` and others. `${env:…}` is allowed, and required for a secret. glue, and rest with
            `rest.sigv4-enabled: "true"`, use the credentials of `store`.
    """

    type: Literal["rest", "sql", "glue"]
    uri: str = ""
    name: Text = "milepost"
    options: dict[Text, Text] = Field(default_factory=dict)

    @property
    def is_on_aws(self) -> bool:
        """As the function of this name."""
        return is_on_aws(self.type, self.options)

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.type != "glue" and not self.uri:
            raise ValueError(f"`type: {self.type}` requires `uri`")
        return self


_QUALIFIED = r"^[^.\s]+(\.[^.\s]+)+$"


def _qualified(name: str) -> str:
    if re.fullmatch(_QUALIFIED, name) is None:
        raise ValueError(f"expected a qualified table name such as `schema.name`, without spaces, got {name!r}")
    return name


QualifiedName = Annotated[str, AfterValidator(_qualified), Field(json_schema_extra={"pattern": _QUALIFIED})]
