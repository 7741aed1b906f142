"""Refuse Iceberg tables that Milepost cannot write safely, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from milepost.sinks.formats.iceberg.partitioning import partition_columns
from milepost.sinks.formats.refusals import Refusal, partition_mismatch, refuse_table

GC_ENABLED = "gc.enabled"
_NEW_TABLE = "give the sink a new table"
_VERSIONS = (1, 2)
_OTHER_CODE = ("py-io-impl", "write.py-location-provider.impl", "write.location-provider.impl")
"""Properties that name code which decides where a table's files are, or how they are read."""


def refuse_metadata(
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
    refuse_table(
        sink,
        name,
        chain(
            _unsupported_features(name, metadata),
            _partition_mismatches(metadata, partition_by),
            _unmapped_columns(name, metadata),
            foreign_deletes(name, manifests),
        ),
    )


def with_properties(metadata: TableMetadata, properties: Mapping[str, str]) -> TableMetadata:
    """Return a copy of the metadata with these properties set."""
    return metadata.model_copy(update={"properties": {**metadata.properties, **properties}})


def _unsupported_features(name: str, metadata: TableMetadata) -> Iterator[Refusal]:
    if metadata.format_version not in _VERSIONS:
        yield Refusal(
            f"has format version {metadata.format_version}; versions 1 and 2 are available",
            f"{_NEW_TABLE}, or create this one with 'format-version'='2'",
        )
    for key in _OTHER_CODE:
        if key in metadata.properties:
            yield Refusal(
                f"has the property {key!r}, which lets other code choose the location of its files", _unset(name, key)
            )
    if metadata.properties.get(GC_ENABLED, "true").lower() != "false":
        yield Refusal(
            "lets engines delete files that no snapshot names but checkpoints still need",
            f"ALTER TABLE {name} SET TBLPROPERTIES ('{GC_ENABLED}'='false')",
        )
    if metadata.sort_order().fields:
        yield Refusal("has a sort order, which the sink does not write", f"ALTER TABLE {name} WRITE UNORDERED")
    schema = metadata.schema()
    if schema.identifier_field_ids:
        columns = ", ".join(sorted(schema.identifier_field_names()))
        yield Refusal(
            f"has identifier fields ({columns}), whose uniqueness the sink does not enforce",
            f"ALTER TABLE {name} DROP IDENTIFIER FIELDS {columns}",
        )
    required = [field.name for field in schema.fields if field.required]
    if required:
        yield Refusal(
            f"requires values in column {required[0]!r}; the sink's columns are all nullable",
            f"ALTER TABLE {name} ALTER COLUMN {required[0]} DROP NOT NULL",
        )


def _partition_mismatches(metadata: TableMetadata, partition_by: tuple[str, ...]) -> Iterator[Refusal]:
    columns = partition_columns(metadata.spec(), metadata.schema())
    if columns == partition_by:
        return
    fields = [str(field.name) for field in metadata.spec().fields]
    mismatch = partition_mismatch(fields, partition_by, f"or {_NEW_TABLE}")
    yield Refusal(mismatch.reason, _NEW_TABLE) if None in columns else mismatch


def _unmapped_columns(name: str, metadata: TableMetadata) -> Iterator[Refusal]:
    """Yield each column that readers would miss. The files carry no field ids, so the name mapping must have it."""
    mapping = metadata.name_mapping()
    numbers = {each: entry.field_id for entry in mapping or () for each in entry.names}
    for field in metadata.schema().fields:
        if numbers.get(field.name) != field.field_id:
            yield Refusal(
                f"does not map column {field.name!r} to a name in its files ('schema.name-mapping.default')",
                f"{_NEW_TABLE}, or add field {field.field_id} under that name to the property of {name}",
            )


def foreign_deletes(name: str, manifests: Iterable[ManifestFile]) -> Iterator[Refusal]:
    """Yield a refusal if another writer's delete files remove rows."""
    if all(manifest.content != ManifestContent.DELETES for manifest in manifests):
        return
    yield Refusal(
        "has delete files of another writer, which remove rows of its data files",
        f"undo that commit: CALL CATALOG.system.rollback_to_snapshot('{name}', SNAPSHOT)",
    )


def _unset(name: str, key: str) -> str:
    return f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{key}')"
