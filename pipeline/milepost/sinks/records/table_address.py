"""Addresses of tables: where a sink's table is and in which format, as a spec says it.

They stand in the contents of each checkpoint, so that a table can be opened as of a checkpoint from before the sink
was migrated, or from after it when the spec has yet to say so. `${env:…}` stays unresolved: no secret is in one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.jobspec.job import CatalogSpec, SinkSpec

OWN_FORMAT = "parquet"
"""The format of our own: what only Milepost reads."""

_OPEN_FORMATS = ("delta", "iceberg")

_PLAIN = re.compile(r"[A-Za-z.][A-Za-z0-9_./-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
"""Texts that YAML, of some version, takes for something else."""


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
        path: None: the table is in a database, which the spec says how to reach.
        table: of an Iceberg or a Postgres table; None for others. catalog: of an Iceberg table; None for others.
    """

    format: str
    path: str | None
    table: str | None = None
    catalog: CatalogAddress | None = None

    def __str__(self) -> str:
        """In words that can be compared."""
        path = "" if self.path is None else f", path: {self.path}"
        named = "" if self.table is None else f", table {self.table}"
        return f"format: {self.format}{path}{named}"

    def spec_lines(self) -> tuple[str, ...]:
        """Return the lines that a sink of the spec has for this table, as YAML."""
        return tuple(_yaml_lines(self))


def may_go(left: str, there: str) -> bool:
    """Return whether a table of a format may go to a place of a format: any of files, but to our own from it alone."""
    return left in (OWN_FORMAT, *_OPEN_FORMATS) and (there in _OPEN_FORMATS or there == left)


def address_of(spec: SinkSpec) -> TableAddress:
    """Return where a sink's table is by the spec."""
    catalog = spec.catalog
    said = None
    if catalog is not None:
        said = CatalogAddress(catalog.type, catalog.uri, catalog.name, dict(sorted(catalog.options.items())))
    return TableAddress(spec.format, spec.path, spec.table, said)


def at_address(spec: SinkSpec, address: TableAddress) -> SinkSpec:
    """Return the sink with its table elsewhere. Raises ValueError: an address that no spec can have."""
    catalog = address.catalog
    said = None
    if catalog is not None:
        said = CatalogSpec.model_validate(
            {"type": catalog.type, "uri": catalog.uri, "name": catalog.name, "options": dict(catalog.options)}
        )
    where = {"format": address.format, "path": address.path, "table": address.table, "catalog": said}
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
    parts = [f"type: {catalog.type}", f"uri: {_quoted(catalog.uri)}", f"name: {_quoted(catalog.name)}"]
    if catalog.options:
        options = ", ".join(f"{_quoted(name)}: {_quoted(text)}" for name, text in catalog.options.items())
        parts.append(f"options: {{{options}}}")
    yield f"catalog: {{{', '.join(parts)}}}"


def _quoted(text: str) -> str:
    """Return a text as YAML has it, without quotes where it is surely the same text."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else "'" + text.replace("'", "''") + "'"
