"""Join small files of a table while a subtask stages its rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from milepost.errors import StateCorrupt
from milepost.sinks.contract import StagingSink
from milepost.sinks.parquet_files.deletes import align_deletes, to_change_rows
from milepost.sinks.parquet_files.file_cuts import cut_by_bytes
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.sinks.parquet_files.table_schema import latest_per_key
from milepost.sinks.staging.small_files import JoinPlan, Run
from milepost.storage.concurrency import parallel_map, prefetch
from milepost.tables.records import JoinedFile, RowsPiece, StagedRows, StagingContext, combined_digest, rows_identity

_LOG = logging.getLogger(__name__)

_PARALLEL_BYTES = 8 << 20
"""Total size of files that are read and joined in parallel."""


class JoinStaging:
    """Stages the epoch's rows, and concurrently joins small files.

    Args:
        staging: stages the epoch's rows. plan: the share of this subtask.
        key: key of an upsert table. Its joined files have the last row of each key; None to keep every row.
    """

    def __init__(
        self, staging: StagingSink, files: TableFiles, plan: JoinPlan, key: tuple[str, ...] | None = None
    ) -> None:
        self._staging, self._files, self._plan, self._key = staging, files, plan, key

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        half = context.with_half_budget()

        def join(numbered: tuple[int, Run]) -> JoinedFile | None:
            number, run = numbered  # two runs may have the same rows, and each needs a file of its own
            try:
                file = self._files.stage(self._rows(run), half, f"j{context.subtask}-{number}")
            except StateCorrupt as error:  # the table is no worse than before, and `verify` names the file
                _LOG.warning("%s. Small files stay as they are.", error.message)
                return None
            assert file is not None, "files of a table have rows"
            rows_of = rows_identity(run) if self._key is None else combined_digest(run)
            joined = replace(file, rows_of=rows_of, partition=run[0].partition)
            return JoinedFile(joined, tuple(each.key for each in run))

        runs, store = [*enumerate(self._plan.runs)], self._files.store
        is_small = sum(file.size for _, run in runs for file in run) <= _PARALLEL_BYTES
        joining = prefetch(
            store, lambda: parallel_map(store, join, runs) if is_small else [*map(join, runs)], "small-files"
        )
        staged = self._staging.stage_pieces(pieces, half)
        return replace(staged, joined=tuple(joined for joined in joining() if joined is not None))

    def _rows(self, run: Run) -> Iterator[pa.Table]:
        """Yield the rows of a run. Small files are read in parallel."""
        schema, latest = self._plan.schema, list[pa.Table]()
        for files in cut_by_bytes(run, _PARALLEL_BYTES):
            if self._key is None:
                yield self._files.rows(files, ReadOptions(schema, verify=True))
            else:  # keep deletes: the deleted row may be in an older file
                rows = self._files.rows(files, ReadOptions(schema, verify=True, deletes=True))
                latest = [latest_per_key(pa.concat_tables(align_deletes([*latest, rows])), self._key)]
        yield from map(to_change_rows, latest)
