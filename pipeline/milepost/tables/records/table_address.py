"""Table addresses: the location and format of a sink's table, as in the spec.

Each checkpoint records the address in its contents, so a table can be opened as of a checkpoint from before a migration
of the sink, or from after a migration that the spec does not contain yet. `${env:…}` stays unresolved, so an address
never contains a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.jobspec.job import CatalogSpec, SinkSpec
from milepost.language import SINK_FORMATS, SinkFormat

_PLAIN = re.compile(r"[A-Za-z.][A-Za-z0-9_./-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
"""Texts that some YAML version parses as a boolean or null."""


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """An Iceberg catalog; see `CatalogSpec`."""

    type: str
    uri: str
    name: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableAddress:
    """A table; see `SinkSpec`.

    Attributes:
        path: None for a table in a database. The spec has the connection.
        table: name of an Iceberg or Postgres table; None for others. catalog: of an Iceberg table; None for others.
    """

    format: str
    path: str | None
    table: str | None = None
    catalog: CatalogAddress | None = None

    def __str__(self) -> str:
        """Return the address as text. The catalog is not part of it."""
        path = "" if self.path is None else f", path: {self.path}"
        named = "" if self.table is None else f", table {self.table}"
        return f"format: {self.format}{path}{named}"

    @property
    def sink_format(self) -> SinkFormat:
        """Capabilities of the table's format."""
        return SINK_FORMATS[self.format]

    def spec_lines(self) -> tuple[str, ...]:
        """Return the YAML lines of this address in a sink of the spec."""
        return tuple(_yaml_lines(self))


def address_of(spec: SinkSpec) -> TableAddress:
    """Return the address of a sink's table in the spec."""
    catalog = spec.catalog
    spec_catalog = None
    if catalog is not None:
        spec_catalog = CatalogAddress(catalog.type, catalog.uri, catalog.name, dict(sorted(catalog.options.items())))
    return TableAddress(spec.format, spec.path, spec.table, spec_catalog)


def at_address(spec: SinkSpec, address: TableAddress) -> SinkSpec:
    """Return the sink with its table at an address. Raises ValueError: no spec can have this address."""
    catalog = address.catalog
    spec_catalog = None
    if catalog is not None:
        spec_catalog = CatalogSpec.model_validate(
            {"type": catalog.type, "uri": catalog.uri, "name": catalog.name, "options": dict(catalog.options)}
        )
    where = {"format": address.format, "path": address.path, "table": address.table, "catalog": spec_catalog}
    return spec.model_copy(update=where)


def _yaml_lines(address: TableAddress) -> Iterator[str]:
    yield f"format: {address.format}"
    if address.path is not None:
        yield f"path: {_quoted(address.path)}"
    if address.table is not None:
        yield f"table: {_quoted(address.table)}"
    catalog = address.catalog
    if catalog is None:
        return
    uri = [f"uri: {_quoted(catalog.uri)}"] if catalog.uri else []
    parts = [f"type: {catalog.type}", *uri, f"name: {_quoted(catalog.name)}"]
    if catalog.options:
        options = ", ".join(f"{_quoted(name)}: {_quoted(text)}" for name, text in catalog.options.items())
        parts.append(f"options: {{{options}}}")
    yield f"catalog: {{{', '.join(parts)}}}"


def _quoted(text: str) -> str:
    """Return a text as a YAML scalar, quoted unless every YAML version parses it as the same text.

    `lake/orders` stays as it is, `no` becomes `'no'`, and `it's` becomes `'it''s'`.
    """
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else "'" + text.replace("'", "''") + "'"
