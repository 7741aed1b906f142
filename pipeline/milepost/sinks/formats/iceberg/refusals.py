"""Refuse Iceberg tables that Milepost cannot write safely, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from milepost.errors import InvalidRequest
from milepost.sinks.formats.iceberg.partitioning import partition_columns

GC_ENABLED = "gc.enabled"
_VERSIONS = (1, 2)
_OTHER_CODE = ("py-io-impl", "write.py-location-provider.impl", "write.location-provider.impl")
"""Properties that name code which decides where a table's files are, or how they are read."""


def refuse_table(
    sink: str,
    name: str,
    metadata: TableMetadata,
    manifests: Iterable[ManifestFile],
    partition_by: tuple[str, ...] = (),
) -> None:
    """Refuse a table that Milepost cannot write without losing some of its features or rows.

    Args:
        name: of the table. manifests: of its current snapshot. partition_by: columns that the spec states.
    Raises: InvalidRequest: the first reason.
    """
    refused = (
        _unsupported_feature(name, metadata)
        or _partition_mismatch(metadata, partition_by)
        or _unmapped_column(name, metadata)
        or foreign_deletes(name, manifests)
    )
    if refused is not None:
        raise refusal(sink, name, *refused)


def refusal(sink: str, name: str, reason: str, hint: str) -> InvalidRequest:
    """Return the error that refuses a table for a reason."""
    return InvalidRequest(f"sink {sink}: its table {name} {reason}. Nothing was published.", hint=hint, sink=sink)


def with_properties(metadata: TableMetadata, properties: Mapping[str, str]) -> TableMetadata:
    """Return a copy of the metadata with these properties set."""
    return metadata.model_copy(update={"properties": {**metadata.properties, **properties}})


def _unsupported_feature(name: str, metadata: TableMetadata) -> tuple[str, str] | None:
    new_path = "give the sink a new table"
    if metadata.format_version not in _VERSIONS:
        return (
            f"has format version {metadata.format_version}; versions 1 and 2 are available",
            f"{new_path}, or make this one with 'format-version'='2'",
        )
    for key in _OTHER_CODE:
        if key in metadata.properties:
            return f"has the property {key!r}: its files lie where other code says", _unset(name, key)
    if metadata.properties.get(GC_ENABLED, "true").lower() != "false":
        return (
            "lets engines delete files that its snapshots no longer name, which checkpoints still need",
            f"ALTER TABLE {name} SET TBLPROPERTIES ('{GC_ENABLED}'='false')",
        )
    if metadata.sort_order().fields:
        return "has a sort order, which the sink did not ask for", f"ALTER TABLE {name} WRITE UNORDERED"
    schema = metadata.schema()
    if schema.identifier_field_ids:
        columns = ", ".join(sorted(schema.identifier_field_names()))
        return (
            f"has identifier fields ({columns}), which nobody keeps unique",
            f"ALTER TABLE {name} DROP IDENTIFIER FIELDS {columns}",
        )
    required = [field.name for field in schema.fields if field.required]
    if required:
        return (
            f"requires values in column {required[0]!r}; the sink's columns are all nullable",
            f"ALTER TABLE {name} ALTER COLUMN {required[0]} DROP NOT NULL",
        )
    return None


def _partition_mismatch(metadata: TableMetadata, partition_by: tuple[str, ...]) -> tuple[str, str] | None:
    actual = partition_columns(metadata.spec(), metadata.schema())
    if actual == partition_by:
        return None
    fields = ", ".join(str(field.name) for field in metadata.spec().fields) or "nothing"
    new_path = "give the sink a new table"
    hint = new_path if None in actual else f"let `partition_by` say {list(actual)}, or {new_path}"
    return f"is partitioned by {fields}, and `partition_by` says {', '.join(partition_by) or 'nothing'}", hint


def _unmapped_column(name: str, metadata: TableMetadata) -> tuple[str, str] | None:
    """Return why readers would miss a column: Milepost's files carry no field ids, so the name mapping must have it."""
    mapping = metadata.name_mapping()
    numbers = {each: entry.field_id for entry in mapping or () for each in entry.names}
    for field in metadata.schema().fields:
        if numbers.get(field.name) != field.field_id:
            return (
                f"does not say in 'schema.name-mapping.default' by what name column {field.name!r} is found in files",
                f"give the sink a new table, or add field {field.field_id} under that name to the property of {name}",
            )
    return None


def foreign_deletes(name: str, manifests: Iterable[ManifestFile]) -> tuple[str, str] | None:
    """Return the reason and the hint if another writer's delete files remove rows; None if there are none."""
    if all(manifest.content != ManifestContent.DELETES for manifest in manifests):
        return None
    return (
        "has delete files of another writer: rows of it are gone that its data files still have",
        f"undo that commit: CALL CATALOG.system.rollback_to_snapshot('{name}', SNAPSHOT)",
    )


def _unset(name: str, key: str) -> str:
    return f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{key}')"
