"""Build commits that change a Delta table's properties, columns or protocol.

The `deltalake` library's own calls also change the protocol: `set_table_properties` adds the reader feature
`variantType` to every table with named features, and readers without it must then refuse the table. `add_columns`
forgets the features that a legacy version of the protocol stands for. So these commits are written here, and change
the protocol only where a new column requires a feature.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from deltalake import DeltaTable
from deltalake.transaction import Transaction

Action = dict[str, Any]
"""One line of a commit."""

VARIANT = "variantType"
_TIMESTAMP_NTZ = "timestampNtz"

_NAMES_READER_FEATURES, _NAMES_WRITER_FEATURES = 3, 7
"""Protocol versions from which features are listed by name. Lower versions imply a fixed set."""

_LEGACY_FEATURES = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
}
"""The writer version that introduced a feature. Column mapping (version 5) is refused wherever it is used."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The versions and features that a client must support to read and write a table."""

    reader_version: int
    writer_version: int
    reader_features: frozenset[str]
    writer_features: frozenset[str]

    @classmethod
    def of(cls, table: DeltaTable) -> Self:
        read = table.protocol()
        return cls(
            read.min_reader_version,
            read.min_writer_version,
            frozenset(read.reader_features or ()),
            frozenset(read.writer_features or ()),
        )

    def with_timestamp_ntz(self) -> Protocol:
        """Return the protocol with support for timestamps without a time zone.

        ```
        reader 1, writer 4            ->  reader 3, writer 7, features appendOnly, …, generatedColumns, timestampNtz
        reader 3, writer 7, features  ->  the same, and timestampNtz
        ```
        """
        writer_features = self.writer_features
        if self.writer_version < _NAMES_WRITER_FEATURES:
            writer_features = frozenset(
                name for name, since in _LEGACY_FEATURES.items() if since <= self.writer_version
            )
        return Protocol(
            _NAMES_READER_FEATURES,
            _NAMES_WRITER_FEATURES,
            self.reader_features | {_TIMESTAMP_NTZ},
            writer_features | {_TIMESTAMP_NTZ},
        )

    def without(self, feature: str) -> Protocol:
        """Return the protocol without a named feature."""
        return Protocol(
            self.reader_version, self.writer_version, self.reader_features - {feature}, self.writer_features - {feature}
        )

    def action(self) -> Action:
        """Return the `protocol` action of a commit."""
        protocol: Action = {"minReaderVersion": self.reader_version, "minWriterVersion": self.writer_version}
        if self.reader_version >= _NAMES_READER_FEATURES:
            protocol["readerFeatures"] = sorted(self.reader_features)
        if self.writer_version >= _NAMES_WRITER_FEATURES:
            protocol["writerFeatures"] = sorted(self.writer_features)
        return {"protocol": protocol}


def metadata_action(table: DeltaTable, columns: Mapping[str, Any], properties: Mapping[str, str]) -> Action:
    """Return the `metaData` action of a commit: the table's complete metadata with these columns and added properties.

    Args:
        columns: the complete schema, as in the log.
    """
    metadata = table.metadata()
    entry = {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(columns),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": {**metadata.configuration, **properties},
        "createdTime": metadata.created_time,
    }
    return {"metaData": {name: value for name, value in entry.items() if value is not None}}


def transaction_actions(transactions: Iterable[Transaction]) -> list[Action]:
    """Return the `txn` actions of a commit."""
    return [{"txn": {"appId": transaction.app_id, "version": transaction.version}} for transaction in transactions]


def commit_body(
    operation: str, parameters: Mapping[str, str], now_ms: int, info: Mapping[str, object], actions: Iterable[Action]
) -> bytes:
    """Return the object of one version: one JSON action per line.

    Args:
        operation, parameters: as `DESCRIBE HISTORY` shows them. info: further entries of `commitInfo`.
    """
    commit_info = {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": dict(parameters),
        "engineInfo": "milepost",
        **info,
    }
    lines: list[Action] = [{"commitInfo": commit_info}, *actions]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()
