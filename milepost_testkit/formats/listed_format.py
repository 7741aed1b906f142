"""A table format for tests that lists its live files, as open formats do, and has other writers.

Each commit is one object that is created only if absent: what it adds and removes, by whom. It exists to hold the rules
that our own Parquet table never meets: foreign rows, compactions, changes of our rows, columns of a table's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa

from milepost.codec.records import from_json, to_json
from milepost.errors import CommitConflict
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.table_format import ForeignCommit, TableMove
from milepost.tables.records.committables import StagedFile, decode_schema, encode_schema
from milepost.tables.records.reservation import TableOwner

LOG = "_listed_log/"


@dataclass
class ListedTable:
    """A table at its newest commit; `others` are the commits since our newest move."""

    store: ObjectStore
    table_id: str = ""
    owner: TableOwner | None = None
    number: int = 0
    write_id: str | None = None
    schema: pa.Schema | None = None
    version: int = 0
    readers_version: str | None = None
    files: dict[str, int] = field(default_factory=dict)
    others: list[ForeignCommit] = field(default_factory=list)
    commits: list[ForeignCommit] = field(default_factory=list)

    def check(self, schema: pa.Schema | None) -> None:
        """Nothing: it holds whatever Parquet does."""

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        return {} if self.owner == owner else {"owner": owner.identity}

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        self.append({"claim": [owner.job, owner.identity, owner.sink], "mark": mark})

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Do nothing: foreign rows are in files of their own."""

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        """Nothing: its rows are those of its files."""
        return None

    def live_files(self) -> Mapping[str, int]:
        return dict(self.files)

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        return tuple(self.others)

    def history(self) -> tuple[ForeignCommit, ...]:
        return tuple(self.commits)

    def widen(self, schema: pa.Schema) -> None:
        self.append({"widen": encode_schema(schema)})

    def commit(self, move: TableMove) -> None:
        self.append(
            {"number": move.number, "write_id": move.write_id}
            | changes("move", move.added, [file.key for file in move.removed], keeps_rows=False)
        )

    def append(self, document: dict[str, Any]) -> None:
        """Commit, unless another writer did since this snapshot. Raises CommitConflict."""
        self.store.create(f"{LOG}{self.version + 1:020d}.json", json.dumps(document).encode())

    def replay(self, document: dict[str, Any]) -> None:
        self.version += 1
        if "create" in document:
            self.table_id, owner = document["create"], document["owner"]
            self.owner = TableOwner(*owner) if owner is not None else None
            self.schema = decode_schema(document["schema"])
        if "claim" in document:
            self.owner = TableOwner(*document["claim"])
            if document["mark"] is not None:
                (self.number, self.write_id), self.others = document["mark"], []
        if "widen" in document:
            self.schema = decode_schema(document["widen"])
        if "what" not in document:
            return
        added = tuple(from_json(StagedFile, one, "file") for one in document["added"])
        self.files = {key: size for key, size in self.files.items() if key not in document["removed"]}
        self.files |= {file.key: file.size for file in added}
        gone = frozenset(document["removed"])
        commit = ForeignCommit(self.version, document["what"], gone, added, document["keeps_rows"])
        self.commits.append(commit)
        if "number" in document:
            self.number, self.write_id, self.others = document["number"], document["write_id"], []
        else:
            self.others.append(commit)


@dataclass
class ListedFormat:
    """One such table, in one store."""

    store: ObjectStore
    keeps_statistics: bool = False
    is_database: bool = False
    caches_reads: bool = False
    log_prefix: str = LOG
    stores_owner: bool = True

    def check_columns(self, schema: pa.Schema) -> None:
        """Nothing: it holds whatever Parquet does."""

    def open(self) -> ListedTable | None:
        entries = sorted(stat.key for stat in self.store.list(LOG))
        table = ListedTable(self.store)
        for key in entries:
            table.replay(json.loads(self.store.get(key)))
        return table if entries else None

    def recent(self) -> None:
        """Nothing: a commit opens it."""

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        whose = [owner.job, owner.identity, owner.sink]
        try:
            ListedTable(self.store).append({"create": uuid4().hex, "owner": whose, "schema": encode_schema(schema)})
        except CommitConflict:  # somebody else's, made meanwhile, is left alone
            return

    def check_rows(self, rows: pa.Table) -> None:
        """Nothing: its files hold whatever its columns do."""

    def probe(self) -> str:
        """Do nothing: the snapshot of the table has read everything."""
        return ""

    def maintain(self, retention_ms: int) -> None:
        """Nothing: its log stays."""


def changes(what: str, added: Iterable[StagedFile], removed: Iterable[str], keeps_rows: bool) -> dict[str, Any]:
    """Return what a commit does to a table's files, in its own words."""
    return {
        "what": what,
        "added": [to_json(file) for file in added],
        "removed": sorted(removed),
        "keeps_rows": keeps_rows,
    }
