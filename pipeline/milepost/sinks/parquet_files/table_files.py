"""Write, check and read the Parquet files of a table.

A staged file is named by its content. With checkpoint 7, token 19, label `3` and SHA-256 bc51…d99e its key is

    _milepost/data/chk-00000000000000000007/t19/3-bc51…d99e.parquet

The key holds all 64 digits of the digest. Another write of the same bytes under that token has the same key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import NotFound, StateCorrupt
from milepost.operators.base import DELETED_COLUMN
from milepost.protocol.records import ObjectStore
from milepost.sinks.parquet_files.deletes import (
    align_deletes,
    latest_rows,
    schema_with_deletes,
    with_delete_column,
    without_deletes,
)
from milepost.sinks.parquet_files.file_encoding import encode_parquet
from milepost.sinks.parquet_files.file_statistics import statistics_of
from milepost.sinks.parquet_files.partition_values import with_partition
from milepost.sinks.parquet_files.table_schema import conform, sorted_latest
from milepost.spill import ordered_rows, reading_scratch
from milepost.storage import digest_of, on_scratch_disk, scratch_file
from milepost.storage.concurrency import parallel_map, prefetched_map
from milepost.tables.records import DATA, StagedFile, StagingContext, staged_prefix

_PARALLEL_READS = 8
_AHEAD_BYTES = 32 << 20
"""Upper bound of the prefetched files in total, and of a single file that is prefetched."""

IN_MEMORY_BYTES = 64 << 20
"""A larger file is copied to disk and read from there."""

_MAX_LISTINGS = 8
"""Above this number of folders, one listing covers all of them."""

_RESTORE = (
    "restore it from a copy, or roll back to a checkpoint whose files exist (milepost rollback); --to 0 empties "
    "the table"
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which rows and columns of a table's files to read, and how to verify them.

    Attributes:
        schema: the table's schema. verify: compare the SHA-256 of each file, not only its size.
        columns: the columns to read, which every file must have; None reads all.
        deletes: include delete rows (`deletes.py`) and the column that marks them. A file without delete rows has no
            such column.
    """

    schema: pa.Schema
    verify: bool = False
    columns: tuple[str, ...] | None = None
    deletes: bool = False

    @property
    def read_schema(self) -> pa.Schema:
        """The schema of the columns that are read."""
        return self.schema if self.columns is None else pa.schema([self.schema.field(name) for name in self.columns])


class TableFiles:
    """Files below the root of one table.

    Args:
        statistics: whether to record column statistics of staged files.
    """

    def __init__(self, sink: str, store: ObjectStore, *, statistics: bool = False) -> None:
        self._sink = sink
        self._store = store
        self._statistics = statistics

    @property
    def store(self) -> ObjectStore:
        return self._store

    def stage(self, tables: Iterable[pa.Table], context: StagingContext, label: str) -> StagedFile | None:
        """Write the rows to one file durably, named by its content. Return None if there are no rows.

        Args:
            tables: of one schema. They are encoded in groups of about `context.held_bytes`. Encoded data beyond that
                is buffered in an anonymous file in the machine's temporary folder.
            label: prefix of the file name.
        Raises: EnvironmentUnusable: the temporary folder cannot be written. Errors of the store are passed on.
        """
        who, now_true = f"sink {self._sink}: ", "Nothing was published."
        with on_scratch_disk("store the staged rows", who=who, now_true=now_true):
            rows, body = encode_parquet(tables, context.held_bytes)
        if not rows:
            return None
        sha256 = hashlib.sha256(body).hexdigest()
        key = f"{staged_prefix(context.checkpoint_id, context.token)}{label}-{sha256}.parquet"
        self._store.put(key, body)
        statistics = statistics_of(pq.read_metadata(pa.BufferReader(body))) if self._statistics else None
        return StagedFile(key, rows, len(body), sha256, statistics)

    def check(self, files: Sequence[StagedFile]) -> None:
        """Raise StateCorrupt if a file is missing or differs from its recorded size."""
        folders = sorted({"".join(file.key.rpartition("/")[:2]) for file in files})
        if len(folders) > _MAX_LISTINGS:
            folders = [DATA] if all(folder.startswith(DATA) for folder in folders) else [""]
        listings = parallel_map(self._store, lambda prefix: list(self._store.list(prefix)), folders)
        sizes = {stat.key: stat.size for listing in listings for stat in listing}
        for file in files:
            if sizes.get(file.key) != file.size:
                actual = f"{sizes[file.key]} bytes" if file.key in sizes else "missing"
                raise StateCorrupt(
                    f"sink {self._sink}: the table's file {file.key} is {actual}, its record says {file.size} bytes. "
                    "Nothing was published.",
                    hint=_RESTORE,
                    key=file.key,
                )

    def stored_sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the current sizes of these objects by key, without those that do not exist."""

        def size(key: str) -> int | None:
            try:
                return self._store.stat(key).size
            except NotFound:
                return None

        every = list(keys)
        sizes = zip(every, parallel_map(self._store, size, every), strict=True)
        return {key: size for key, size in sizes if size is not None}

    def rows(self, files: Sequence[StagedFile], options: ReadOptions) -> pa.Table:
        """Return the rows of the files in file order, with the table's columns. Raises StateCorrupt."""
        if not files:
            return options.read_schema.empty_table()
        with ThreadPoolExecutor(min(_PARALLEL_READS, len(files))) as pool:
            tables = list(pool.map(lambda file: self.fetch(file, options), files))
        return pa.concat_tables(align_deletes(tables))

    def all_pieces(self, files: Sequence[StagedFile], options: ReadOptions) -> Iterator[pa.Table]:
        """Yield the result of `rows` in pieces. Small files are prefetched. Raises: as `rows`."""

        def body(file: StagedFile) -> bytes | None:
            return self._get(file) if file.size <= _AHEAD_BYTES else None

        sized = ((file, file.size if file.size <= _AHEAD_BYTES else 0) for file in files)
        for file, ahead in zip(files, prefetched_map(self._store, body, sized, _AHEAD_BYTES), strict=True):
            yield from self.pieces(file, options, ahead)

    def latest_pieces(
        self, files: Sequence[StagedFile], options: ReadOptions, key: tuple[str, ...]
    ) -> Iterator[pa.Table]:
        """Yield the latest row per key in pieces, ordered by key, nulls last, without deleted rows.

        Rows beyond the memory limit are spilled to disk. Raises: as `rows`.
        """
        pieces = map(with_delete_column, self.all_pieces(files, replace(options, deletes=True)))
        if not key:
            yield latest_rows([schema_with_deletes(options.read_schema).empty_table(), *pieces], key)
            return
        for rows in ordered_rows(pieces, key, partial(sorted_latest, key=key)):
            yield without_deletes(rows)

    def with_digest(self, file: StagedFile) -> StagedFile:
        """Add the SHA-256 to a file of an external writer. Reads its content in pieces.

        Raises:
            StateCorrupt: the file is missing, or differs from its recorded size.
            CommitConflict: another writer is changing it.
        """
        try:
            stat = self._store.stat(file.key)
        except NotFound as error:
            raise self._corrupt(file, "is missing") from error
        if stat.size != file.size:
            raise self._corrupt(file, f"has {stat.size} bytes, its table's log records {file.size}")
        return replace(file, sha256=digest_of(self._store, stat))

    def problems(self, files: Iterable[StagedFile], schema: pa.Schema, *, deep: bool) -> list[str]:
        """Return one line per missing file or wrong size. `deep` also checks content, rows and columns."""

        def problem(file: StagedFile) -> str | None:
            try:
                if deep:
                    for _ in self.pieces(file, ReadOptions(schema, verify=True, deletes=True)):
                        pass
                elif (size := self._store.stat(file.key).size) != file.size:
                    return f"sink {self._sink}: {file.key} has {size} bytes, its record says {file.size}"
            except NotFound:
                return f"sink {self._sink}: {file.key} is missing"
            except StateCorrupt as error:
                return error.message
            return None

        return [line for line in parallel_map(self._store, problem, files) if line is not None]

    def fetch(self, file: StagedFile, options: ReadOptions) -> pa.Table:
        """Return the rows of one file, with the table's columns.

        Raises: StateCorrupt: the file is missing, changed or unreadable, or its columns differ.
        """
        with self._opened(file, options.verify) as parquet:
            return self._read(file, parquet, None, options)

    def pieces(self, file: StagedFile, options: ReadOptions, body: bytes | None = None) -> Iterator[pa.Table]:
        """Yield the rows of one file per row group, with one row group in memory at a time.

        Args:
            body: the prefetched content; None if it has not been read.
        Raises: as `fetch`.
        """
        with self._opened(file, options.verify, body) as parquet:
            for number in range(parquet.num_row_groups):
                yield self._read(file, parquet, number, options)

    def _read(self, file: StagedFile, parquet: pq.ParquetFile, number: int | None, options: ReadOptions) -> pa.Table:
        """Return the rows of one row group. number: its index; None reads all of them."""
        schema = options.read_schema
        with self._checked(file):
            names = None if options.columns is None else list(options.columns)
            if options.deletes and DELETED_COLUMN in parquet.schema_arrow.names:
                schema = schema_with_deletes(schema)
                names = None if names is None else [*names, DELETED_COLUMN]
            rows = parquet.read(names) if number is None else parquet.read_row_group(number, names)
            rows = with_partition(with_instants(parquet, rows), file.partition, schema)
        return conform(file.key, rows, schema)

    @contextmanager
    def _opened(self, file: StagedFile, verify: bool, body: bytes | None = None) -> Iterator[pq.ParquetFile]:
        """Open a file after checking its size and number of rows, with `verify` also its SHA-256. Raises StateCorrupt.

        A file above `IN_MEMORY_BYTES` is copied to disk in pieces first.
        """
        with ExitStack() as opened:
            try:
                if body is not None or file.size <= IN_MEMORY_BYTES:
                    body = self._get(file) if body is None else body
                    size, sha256 = len(body), hashlib.sha256(body).hexdigest() if verify else ""
                    reader = pa.BufferReader(body)
                else:
                    who = f"sink {self._sink}: "
                    scratch = opened.enter_context(scratch_file("store a file of the table", who=who))
                    stat = self._store.stat(file.key)
                    size, sha256 = stat.size, digest_of(self._store, stat, scratch, who=who)
                    reader = pa.PythonFile(scratch, mode="r")
            except NotFound as error:
                raise self._corrupt(file, "is missing") from error
            if size != file.size or (verify and file.sha256 and sha256 != file.sha256):
                raise self._corrupt(file, "does not match its recorded size and checksum")
            with self._checked(file):
                parquet = pq.ParquetFile(reader, coerce_int96_timestamp_unit="us")
            if (rows := parquet.metadata.num_rows) != file.rows:
                raise self._corrupt(file, f"has {rows} rows, its record says {file.rows}")
            yield parquet

    def _get(self, file: StagedFile) -> bytes:
        try:
            return self._store.get(file.key)
        except NotFound as error:
            raise self._corrupt(file, "is missing") from error

    def _corrupt(self, file: StagedFile, what: str) -> StateCorrupt:
        """Return the error of a file that differs from its record. what: the predicate of the message."""
        return StateCorrupt(f"sink {self._sink}: {file.key} {what}", hint=_RESTORE, key=file.key)

    def _checked(self, file: StagedFile) -> AbstractContextManager[None]:
        """Convert read errors: StateCorrupt for invalid Parquet, EnvironmentUnusable for the scratch disk."""
        return reading_scratch(lambda _: self._corrupt(file, "is not readable as Parquet"), who=f"sink {self._sink}: ")


def with_instants(parquet: pq.ParquetFile, rows: pa.Table) -> pa.Table:
    """Return the rows with INT96 times as UTC. Spark writes instants as INT96, which has no time zone."""
    stored = [parquet.schema.column(at) for at in range(len(parquet.schema))]
    for name in {column.path for column in stored if column.physical_type == "INT96"} & set(rows.column_names):
        column = rows.column(name).cast(pa.timestamp("us", "UTC"))
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows
