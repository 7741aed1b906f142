"""The kinds of tables that Milepost publishes: what the spec says of each, and its rows by the format's own library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.systems.contract import Folders
from bench.workloads.workloads import Query, Workload

_NAME = "bench.result"


@dataclass(frozen=True, slots=True)
class TableKind:
    """One kind.

    Attributes:
        format: of the sink. mode: of running aggregates; rows that never change are appended.
    """

    format: str
    mode: str = "upsert"

    def sink(self, workload: Workload, folders: Folders) -> dict[str, Any]:
        """Keys of the spec's sink in addition to its name and input."""
        mode = self.mode if workload.replaces else "append"
        found: dict[str, Any] = {"format": self.format, "path": folders.output.as_uri(), "mode": mode}
        if self.format == "iceberg":
            found |= {"catalog": {"type": "sql", "uri": _catalog(folders)}, "table": _NAME}
        return found

    def result_sql(self, workload: Workload, folders: Folders) -> str:
        """DuckDB SQL over the table's live files, as the format's library lists them: Milepost has no part in it."""
        files = _delta_files(folders) if self.format == "delta" else _iceberg_files(folders)
        columns = ", ".join(workload.result_columns)
        rows = f"SELECT {columns} FROM read_parquet([{', '.join(repr(file) for file in files)}])"
        if self.mode != "changelog" or workload.query is not Query.AGGREGATE:
            return rows
        key = ", ".join(workload.key)
        return f"{rows} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY _checkpoint DESC) = 1"

    def versions(self) -> dict[str, str]:
        """Of the format's library."""
        from importlib.metadata import version

        library = {"delta": "deltalake", "iceberg": "pyiceberg"}.get(self.format)
        return {} if library is None else {library: version(library)}


OWN = TableKind("parquet")
"""Our own table, which Milepost alone reads."""


def _catalog(folders: Folders) -> str:
    return f"sqlite:///{folders.work / 'catalog.db'}"


def _delta_files(folders: Folders) -> list[str]:
    from deltalake import DeltaTable

    return [file.removeprefix("file://") for file in DeltaTable(str(folders.output)).file_uris()]


def _iceberg_files(folders: Folders) -> list[str]:
    from pyiceberg.catalog.sql import SqlCatalog

    table = SqlCatalog("milepost", uri=_catalog(folders), warehouse=folders.output.as_uri()).load_table(_NAME)
    tasks = list(table.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise RuntimeError("the table has delete files, which these queries do not apply")
    return [task.file.file_path.removeprefix("file://") for task in tasks]
