"""A table format with hooks around its operations: to hold a commit back, to fail it, or to lose its response."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from milepost.sinks.table_format import ForeignCommit, OpenTable, TableFormat, TableMove
from milepost.tables.records.committables import StagedFile
from milepost.tables.records.reservation import TableOwner

T = TypeVar("T")

Hook = Callable[[str, str], None]
"""Called with (operation, subject); what it raises is what the caller of the operation gets."""


@dataclass(eq=False)
class HookedFormat:
    """The inner format; `before` and `after` are called around open, create, claim, widen and commit.

    The subject of a commit is the number that it carries; of everything else "".
    """

    inner: TableFormat
    before: Hook
    after: Hook

    @property
    def keeps_statistics(self) -> bool:
        return self.inner.keeps_statistics

    @property
    def caches_reads(self) -> bool:
        return False

    @property
    def log_prefix(self) -> str:
        return self.inner.log_prefix

    @property
    def stores_owner(self) -> bool:
        return self.inner.stores_owner

    @property
    def is_database(self) -> bool:
        return self.inner.is_database

    def check_columns(self, schema: pa.Schema) -> None:
        self.inner.check_columns(schema)

    def check_rows(self, rows: pa.Table) -> None:
        self.inner.check_rows(rows)

    def open(self) -> HookedTable | None:
        table = self.call("open", "", self.inner.open)
        return None if table is None else HookedTable(table, self)

    def recent(self) -> None:
        """Nothing: a commit opens it."""

    def create(self, owner: TableOwner, schema: pa.Schema) -> None:
        self.call("create", "", lambda: self.inner.create(owner, schema))

    def probe(self) -> str:
        return self.inner.probe()

    def maintain(self, retention_ms: int) -> None:
        self.inner.maintain(retention_ms)

    def call(self, operation: str, subject: str, act: Callable[[], T]) -> T:
        self.before(operation, subject)
        result = act()
        self.after(operation, subject)
        return result


class HookedTable:
    """A table of it at one look."""

    def __init__(self, inner: OpenTable, form: HookedFormat) -> None:
        self._inner, self._form = inner, form
        self.version, self.table_id, self.owner = inner.version, inner.table_id, inner.owner
        self.number, self.readers_version = inner.number, inner.readers_version
        self.write_id, self.schema = inner.write_id, inner.schema

    def check(self, schema: pa.Schema | None) -> None:
        self._inner.check(schema)

    def missing_properties(self, owner: TableOwner) -> Mapping[str, str]:
        return self._inner.missing_properties(owner)

    def claim(self, owner: TableOwner, properties: Mapping[str, str], mark: tuple[int, str] | None) -> None:
        self._form.call("claim", "", lambda: self._inner.claim(owner, properties, mark))

    def check_keys(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> None:
        self._inner.check_keys(pieces, schema)

    def rows_fault(self, files: Sequence[StagedFile]) -> str | None:
        return self._inner.rows_fault(files)

    def live_files(self) -> Mapping[str, int] | None:
        return self._inner.live_files()

    def foreign_commits(self) -> tuple[ForeignCommit, ...]:
        return self._inner.foreign_commits()

    def history(self) -> tuple[ForeignCommit, ...]:
        return self._inner.history()

    def widen(self, schema: pa.Schema) -> None:
        self._form.call("widen", "", lambda: self._inner.widen(schema))

    def commit(self, move: TableMove) -> None:
        self._form.call("commit", str(move.number), lambda: self._inner.commit(move))
