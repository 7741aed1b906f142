"""Tables in a folder of the test: our own Parquet table, and the tests' own format that lists its files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.tables.records.committables import StagedFile, encode_schema
from milepost_testkit.formats.listed_format import ListedFormat, ListedTable, changes
from tests.conformance.sinks.contract.case import Pairs, SinkCase, pairs
from tests.conformance.sinks.formats.parquet_sink import ParquetCase


class LocalCase(SinkCase):
    """Of whatever format."""

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / f"a {part}"))


class LocalParquet(LocalCase, ParquetCase):
    """Our own."""

    whole_contract = True


class LocalListed(LocalCase):
    """A table with external writers, whose files do not carry our names."""

    format_name = "listed"
    whole_contract = True

    def table_format(self, store: ObjectStore) -> ListedFormat:
        return ListedFormat(store)

    def make_foreign(self, root: Path, table: pa.Table) -> None:
        made = {"create": uuid4().hex, "owner": None, "schema": encode_schema(table.schema)}
        ListedTable(self.table_store(root)).append(made)
        if table.num_rows:
            self.append_foreign(root, table)

    def append_foreign(self, root: Path, table: pa.Table) -> None:
        self._others(root, "append", [self._written(root, table)], [], keeps_rows=False)

    def compact_foreign(self, root: Path) -> None:
        opened = self._opened(root)
        tables = [self._read(root, key) for key in opened.files]
        self._others(root, "compact", [self._written(root, pa.concat_tables(tables))], opened.files, keeps_rows=True)

    def delete_foreign(self, root: Path, key: int) -> None:
        kept, removed = [], []
        for file in self._opened(root).files:
            table = self._read(root, file)
            rest = table.filter(pc.field("k") != key)
            if rest.num_rows < table.num_rows:
                removed.append(file)
                kept += [self._written(root, rest)] if rest.num_rows else []
        self._others(root, "delete", kept, removed, keeps_rows=False)

    def undo_foreign(self, root: Path) -> None:
        table = self._opened(root)
        newest = table.commits[-1]
        files = [
            StagedFile(key, self._read(root, key).num_rows, len(self.table_store(root).get(key)), "")
            for key in newest.removed
        ]
        self._others(root, "restore", files, [file.key for file in newest.added], keeps_rows=False)

    def engine_rows(self, root: Path) -> Pairs:
        return sorted(pair for file in self._opened(root).files for pair in pairs(self._read(root, file)))

    def _opened(self, root: Path) -> ListedTable:
        table = self.table_format(self.table_store(root)).open()
        assert table is not None
        return table

    def _others(
        self, root: Path, what: str, added: list[StagedFile], removed: Iterable[str], *, keeps_rows: bool
    ) -> None:
        self._opened(root).append(changes(what, added, removed, keeps_rows))

    def _written(self, root: Path, table: pa.Table) -> StagedFile:
        body = pa.BufferOutputStream()
        pq.write_table(table, body)
        content = body.getvalue().to_pybytes()
        sha256 = hashlib.sha256(content).hexdigest()
        key = f"part-{self._opened(root).version}-{sha256[:8]}.parquet"
        self.table_store(root).put(key, content)
        return StagedFile(key, table.num_rows, len(content), sha256)

    def _read(self, root: Path, key: str) -> pa.Table:
        return pq.ParquetFile(pa.BufferReader(self.table_store(root).get(key))).read()
