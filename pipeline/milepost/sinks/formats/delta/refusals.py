"""Refuse Delta tables with unsupported features, properties or columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.sinks.formats.delta.delta_metadata import VARIANT, Protocol
from milepost.sinks.formats.delta.delta_types import check_columns
from milepost.sinks.formats.refusals import (
    Refusal,
    column_refused,
    partition_mismatch,
    refuse_case_variants,
    refuse_table,
    table_refused,
)
from milepost.tables.delta import FILE_RETENTION, LOG_RETENTION, duration_ms, interval

_WRITABLE = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz", VARIANT}
)
"""Features that commits of whole files preserve, as long as no property or column uses them.

A table with a column of type variant is refused because of that column.
"""

_IDENTITY_COLUMNS = 6
"""The writer version that stands for identity columns, which the library does not write."""

_OTHER_PATH = "or give the sink a new path"


@dataclass(frozen=True, slots=True)
class TableTraits:
    """A table's protocol, properties and columns.

    Attributes:
        fields: the columns as in the log.
    """

    properties: Mapping[str, str]
    protocol: Protocol
    partition_columns: tuple[str, ...]
    fields: tuple[dict[str, Any], ...]


def refuse_traits(sink: str, table: str, traits: TableTraits, partition_by: tuple[str, ...]) -> None:
    """Refuse a table with features or properties that Milepost's commits would break, or that would break them.

    Args:
        table: its URL.
    Raises: InvalidRequest.
    """
    refuse_table(sink, table, _refusals(traits, partition_by))


def _refusals(traits: TableTraits, partition_by: tuple[str, ...]) -> Iterator[Refusal]:
    if traits.protocol.writer_version == _IDENTITY_COLUMNS:
        yield Refusal(
            f"has writer version {_IDENTITY_COLUMNS}, which Milepost cannot write",
            f"copy it to a table with a lower version, {_OTHER_PATH}",
        )
    if unknown := sorted(traits.protocol.writer_features - _WRITABLE):
        yield Refusal(
            f"uses the Delta features {', '.join(unknown)}, which Milepost cannot write",
            f"drop the feature (ALTER TABLE … DROP FEATURE {unknown[0]}), {_OTHER_PATH}",
        )
    for refusal in _property_refusals(traits.properties):
        yield Refusal(refusal.reason, f"{refusal.hint}, {_OTHER_PATH}")
    if traits.partition_columns != partition_by:
        yield partition_mismatch(traits.partition_columns, partition_by, _OTHER_PATH)
    for field in traits.fields:
        if (trait := _column_fault(field)) is not None:
            yield Refusal(f"has a column {field['name']!r} that {trait}", f"drop that, {_OTHER_PATH}")


def short_retentions(sink: str, table: str, properties: Mapping[str, str], retention_ms: int) -> dict[str, str]:
    """Return the new values of the table's retentions that are too short. A longer one is never lowered.

    Raises: InvalidRequest: a retention cannot be parsed, so it may be longer.
    """
    short = {}
    for name in (FILE_RETENTION, LOG_RETENTION):
        current_ms = duration_ms(properties, name)
        if current_ms is None:
            raise table_refused(
                sink,
                table,
                Refusal(
                    f"has {name} = {properties[name]!r}, which cannot be parsed as a number of weeks, days, hours or "
                    f"seconds; retained checkpoints need {interval(retention_ms)}",
                    f"ALTER TABLE … SET TBLPROPERTIES ('{name}' = '{interval(retention_ms)}')",
                ),
            )
        if current_ms < retention_ms:
            short[name] = interval(retention_ms)
    return short


def check_schema(sink: str, table: pa.Schema | None, rows: pa.Schema) -> None:
    """Refuse rows with types or names that Delta does not support, or types that differ from the table's.

    Raises: InvalidRequest, naming the column.
    """
    check_columns(sink, rows)
    columns = table if table is not None else pa.schema([])
    for field in rows:
        if field.name in columns.names and not columns.field(field.name).type.equals(field.type):
            reason = f"has the type {field.type}, in the table it is {columns.field(field.name).type}"
            hint = f"cast it to {columns.field(field.name).type}, {_OTHER_PATH}"
            raise column_refused(sink, field.name, Refusal(reason, hint))
    refuse_case_variants(sink, dict.fromkeys((*columns.names, *rows.names)))


def _property_refusals(properties: Mapping[str, str]) -> Iterator[Refusal]:
    """Yield a refusal for each unsupported property of a table."""

    def unset(name: str) -> str:
        return f"ALTER TABLE … UNSET TBLPROPERTIES ('{name}')"

    for name in ("delta.appendOnly", "delta.enableDeletionVectors"):
        if properties.get(name, "").lower() == "true":
            yield Refusal(f"has {name} set, so its files could not be replaced as a whole", unset(name))
    if properties.get("delta.columnMapping.mode", "none").lower() != "none":
        yield Refusal("maps its columns to other names (delta.columnMapping.mode)", "rewrite it without")
    if "delta.setTransactionRetentionDuration" in properties:
        name = "delta.setTransactionRetentionDuration"
        yield Refusal(f"has {name} set, so it would forget which checkpoint it shows", unset(name))
    for name in sorted(properties):
        if name.startswith("delta.constraints."):
            constraint = name.removeprefix("delta.constraints.")
            yield Refusal(f"has the constraint {constraint}", f"ALTER TABLE … DROP CONSTRAINT {constraint}")


def _column_fault(field: Mapping[str, Any]) -> str | None:
    metadata = field.get("metadata") or {}
    if "delta.generationExpression" in metadata:
        return "is generated from other columns"
    if any(name.startswith("delta.identity.") for name in metadata):
        return "is an identity column"
    if "delta.invariants" in metadata:
        return "has an invariant"
    if not field["nullable"]:
        return "is NOT NULL, but rows that are older than a column have no value for it"
    return None
