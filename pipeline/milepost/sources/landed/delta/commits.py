"""Read the files that a commit of a Delta log appended, or refuse the commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from milepost.language import ColumnType, to_arrow
from milepost.protocol.records import ObjectStore
from milepost.sources.landed.tables.column_types import check_declared
from milepost.sources.landed.tables.data_files import DataFile, FieldNames
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.tables.delta import arrow_type

_READABLE = frozenset(
    {
        "columnMapping",
        "deletionVectors",  # only files that have none
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",  # only columns that are not declared
        "variantType-preview",
    }
)
"""Reader features that do not change what an appended file means, or that are refused where they are used."""

_MAPPING, _UNMAPPED = "delta.columnMapping.mode", "none"
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
"""A table's property, and metadata of its columns, about the names that they have in files."""

_NAMES_FEATURES = 3
"""The reader version from which features are listed by name."""


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """The rows to read from a Delta table, and the errors if that is impossible.

    Attributes:
        store: rooted at the table. types: the declared columns.
        columns: how files name them, if the table maps the names of its columns; None: as they are declared.
    """

    failures: TableFailures
    store: ObjectStore
    types: Mapping[str, ColumnType]
    columns: Mapping[str, FieldNames] | None = None

    def as_of(self, configuration: Mapping[str, str], fields: Sequence[Mapping[str, Any]]) -> DeltaRows:
        """Return how rows are read while the table has these columns. Raises InvalidRequest: other columns."""
        self.check_columns(configuration, fields)
        mode = configuration.get(_MAPPING, _UNMAPPED).lower()
        if mode == _UNMAPPED:
            return self
        for name, type_ in self.types.items():
            if _has_fields(to_arrow(type_)):
                raise self.failures.refused(
                    f"maps the names of its columns ({_MAPPING}), and Milepost does not map those within {name}",
                    f"leave {name} out of `schema`, or rewrite the table without column mapping",
                )
        mapped = {field["name"]: field.get("metadata") or {} for field in fields if field["name"] in self.types}
        for name, metadata in mapped.items():
            if not {_ID, _PHYSICAL} <= metadata.keys():
                raise self.failures.invalid(
                    f"maps the names of its columns ({_MAPPING}), and its log has no mapping of {name}",
                    "repair the table with the engine that wrote it",
                )
        columns = {
            name: FieldNames(metadata[_ID] if mode == "id" else None, (metadata[_PHYSICAL],))
            for name, metadata in mapped.items()
        }
        return replace(self, columns=columns)

    def appended(self, version: int, actions: Sequence[Mapping[str, Any]]) -> list[DataFile]:
        """Return the files that a commit appended, in its order.

        Files with rewritten rows (OPTIMIZE) have no new rows, and are skipped.

        Raises InvalidRequest: it did something else as well, or does not follow Delta's protocol.
        """
        try:
            return [*self._appended(version, actions)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.failures.invalid(
                f"has a commit of version {version} that does not follow Delta's protocol ({type(error).__name__}: "
                f"{str(error)[:80]})",
                "repair the table with the engine that wrote it",
            ) from error

    def _appended(self, version: int, actions: Sequence[Mapping[str, Any]]) -> Iterator[DataFile]:
        operation = _operation(actions)
        at = f" in version {version}"
        self.require_not_restored(version, actions)
        for action in actions:
            if (removed := action.get("remove")) is not None and removed.get("dataChange", True):
                raise self.failures.refused(
                    f"deleted or updated rows in version {version} ({operation or 'a commit without an operation'}), "
                    "and a landed log is only appended to"
                )
            if (protocol := action.get("protocol")) is not None:
                self.check_protocol(protocol["minReaderVersion"], protocol.get("readerFeatures") or (), at)
            if (metadata := action.get("metaData")) is not None:
                fields = json.loads(metadata["schemaString"])["fields"]
                self.check_columns(metadata.get("configuration") or {}, fields, at)
        for action in actions:
            if (added := action.get("add")) is not None and added.get("dataChange", True):
                yield self._file(added, at)

    def require_not_restored(self, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
        """Raise InvalidRequest: a commit restored the table to an older version."""
        if _operation(actions) == "RESTORE":
            raise self.failures.refused(f"was restored to an older version by version {version}")

    def file(self, path: str, size: int, partition: Mapping[str, Any], at: str) -> DataFile:
        """Return a file of the table.

        Args:
            path: as in the log. partition: values, or their texts in the log, by column.
            at: where the log names it, for messages.
        Raises: InvalidRequest: it is not below the table, or a value is not of the column's type.
        """
        key = unquote(path)
        if "://" in path or path.startswith(("/", "file:")) or ".." in key.split("/"):
            raise self.failures.refused(
                f"has a data file outside of its folder{at} ({path[:200]}), as a shallow clone has", "copy the clone"
            )
        constants = {name: self._value(name, value, at) for name, value in partition.items() if name in self.types}
        return DataFile(self.store, key, size, constants, self.columns)

    def check_protocol(self, reader_version: int, features: Sequence[str], at: str = "") -> None:
        """Refuse a protocol that this reader does not know. Raises InvalidRequest."""
        unknown = sorted(set(features) - _READABLE) if reader_version >= _NAMES_FEATURES else []
        if reader_version > _NAMES_FEATURES:
            raise self.failures.refused(f"needs reader version {reader_version}{at}, which Milepost cannot read")
        if unknown:
            raise self.failures.refused(
                f"uses the Delta features {', '.join(unknown)}{at}, which Milepost cannot read",
                f"drop the feature (ALTER TABLE … DROP FEATURE {unknown[0]})",
            )

    def check_columns(
        self, configuration: Mapping[str, str], fields: Sequence[Mapping[str, Any]], at: str = ""
    ) -> None:
        """Refuse columns that are not as declared. Raises InvalidRequest."""
        columns = {self._logical(field): _type(field["type"]) for field in fields}
        declared = {name: type_ for name, type_ in self.types.items() if not at or name in columns}
        check_declared(self.failures, declared, columns, at)

    def _logical(self, field: Mapping[str, Any]) -> str:
        """Return the name that a column has now. A commit before it was renamed has an older one."""
        physical = (field.get("metadata") or {}).get(_PHYSICAL, field["name"])
        return str(field["name"]) if self.columns is None else self._by_physical.get(physical, physical)

    @property
    def _by_physical(self) -> dict[str, str]:
        return {column.names[0]: name for name, column in (self.columns or {}).items()}

    def _file(self, added: Mapping[str, Any], at: str) -> DataFile:
        if added.get("deletionVector") is not None:
            raise self.failures.refused(
                f"has a data file with deleted rows{at} (a deletion vector)",
                "purge it (REORG TABLE … APPLY (PURGE))",
            )
        partition = (added.get("partitionValues") or {}).items()
        by_physical = self._by_physical
        values = {by_physical.get(name, name): value for name, value in partition}
        return self.file(added["path"], added["size"], values, at)

    def _value(self, column: str, value: Any, at: str) -> Any:
        """Return the value of a partition column. An empty text in the log is null."""
        if value is None or value == "":
            return None
        declared = to_arrow(self.types[column])
        try:
            return _parsed(value, declared) if isinstance(value, str) else pa.scalar(value, declared).as_py()
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise self.failures.invalid(
                f"has the value {str(value)[:80]!r} of its partition column {column}{at}, which is no {declared}",
                "correct the type in `schema`, or the table",
            ) from error


def _parsed(text: str, declared: pa.DataType) -> Any:
    if pa.types.is_timestamp(declared):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC) if declared.tz else moment.replace(tzinfo=None)
    if pa.types.is_binary(declared):
        return text.encode("latin-1")
    return pa.scalar(text).cast(declared).as_py()


def _has_fields(type_: pa.DataType) -> bool:
    """Return whether a type has fields with names."""
    if pa.types.is_list(type_):
        return _has_fields(type_.value_type)
    return bool(pa.types.is_struct(type_))


def _type(delta: Any) -> pa.DataType | str:
    try:
        return arrow_type(delta)
    except KeyError as error:
        return str(error.args[0])


def _operation(actions: Sequence[Mapping[str, Any]]) -> str:
    for action in actions:
        if isinstance(info := action.get("commitInfo"), dict):
            return str(info.get("operation") or "")[:40]
    return ""
