"""A subtask joins small files of its table, beside the rows that it stages; nothing of both is visible yet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from milepost.errors import StateCorrupt
from milepost.sinks.contract import StagingSink
from milepost.sinks.files.deletes import alike, stageable
from milepost.sinks.files.file_cuts import cut_by_bytes
from milepost.sinks.files.table_files import Reading, TableFiles
from milepost.sinks.files.table_schema import latest_per_key
from milepost.sinks.records.committables import JoinedFile, RowsPiece, StagedRows
from milepost.sinks.records.shown_rows import joined_number
from milepost.sinks.records.staging_place import StagingPlace
from milepost.sinks.staging.small_files import JoinPlan, Run, rows_identity
from milepost.storage.concurrency.background import prefetch
from milepost.storage.concurrency.parallel_map import parallel_map

_LOG = logging.getLogger(__name__)

_TOGETHER_BYTES = 8 << 20
"""Of files: so much is read and joined side by side."""


class JoinStaging:
    """Stages as another does, then what its plan says.

    Args:
        staging: stages the epoch's rows. plan: of this subtask alone.
        key: of a table of the latest rows, which a run has of each key; None: every row stays.
    """

    def __init__(
        self, staging: StagingSink, files: TableFiles, plan: JoinPlan, key: tuple[str, ...] | None = None
    ) -> None:
        self._staging, self._files, self._plan, self._key = staging, files, plan, key

    def stage_pieces(self, pieces: Iterable[RowsPiece], place: StagingPlace) -> StagedRows:
        half = place.half()

        def join(numbered: tuple[int, Run]) -> JoinedFile | None:
            number, run = numbered  # two runs may have the same rows, and each needs a file of its own
            try:
                file = self._files.stage(self._rows(run), half, f"j{place.subtask}-{number}")
            except StateCorrupt as error:  # it is no worse than before, and `verify` names it
                _LOG.warning("%s. Small files stay as they are.", error.message)
                return None
            assert file is not None, "files of a table have rows"
            rows_of = rows_identity(run) if self._key is None else joined_number(run)
            joined = replace(file, rows_of=rows_of, partition=run[0].partition)
            return JoinedFile(joined, tuple(each.key for each in run))

        runs, store = [*enumerate(self._plan.runs)], self._files.store
        is_little = sum(file.size for _, run in runs for file in run) <= _TOGETHER_BYTES
        joining = prefetch(
            store, lambda: parallel_map(store, join, runs) if is_little else [*map(join, runs)], "small-files"
        )
        staged = self._staging.stage_pieces(pieces, half)
        return replace(staged, joined=tuple(one for one in joining() if one is not None))

    def _rows(self, run: Run) -> Iterator[pa.Table]:
        """Yield the rows of some files, which are read side by side as far as they are small."""
        schema, latest = self._plan.schema, list[pa.Table]()
        for files in cut_by_bytes(run, _TOGETHER_BYTES):
            if self._key is None:
                yield self._files.rows(files, Reading(schema, verify=True))
            else:  # a delete stays: it may be of a row that lies below
                rows = self._files.rows(files, Reading(schema, verify=True, deletes=True))
                latest = [latest_per_key(pa.concat_tables(alike([*latest, rows])), self._key)]
        yield from map(stageable, latest)
