"""A subtask joins small files of its table, beside the rows that it stages; nothing of both is visible yet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from milepost.dataflow.sinks.contract import StagingSink
from milepost.dataflow.sinks.files.table_files import TableFiles
from milepost.dataflow.sinks.records.committables import JoinedFile, RowsPiece, StagedRows
from milepost.dataflow.sinks.staging.small_files import JoinPlan, Run, rows_identity
from milepost.protocol.records.errors import StateCorrupt

_LOG = logging.getLogger(__name__)


class JoinStaging:
    """Stages as another does, then what its plan says.

    Args:
        staging: stages the epoch's rows. plan: of this subtask alone.
    """

    def __init__(self, staging: StagingSink, files: TableFiles, plan: JoinPlan) -> None:
        self._staging, self._files, self._plan = staging, files, plan

    def stage_pieces(
        self, pieces: Iterable[RowsPiece], *, checkpoint_id: int, token: int, subtask: int, held_bytes: int
    ) -> StagedRows:
        staged = self._staging.stage_pieces(
            pieces, checkpoint_id=checkpoint_id, token=token, subtask=subtask, held_bytes=held_bytes
        )
        joined = []
        for run in self._plan.runs:
            try:
                file = self._files.stage(self._rows(run), checkpoint_id, token, f"j{subtask}", held_bytes)
            except StateCorrupt as error:  # it is no worse than before, and `verify` names it
                _LOG.warning("%s. Small files stay as they are.", error.message)
                continue
            assert file is not None, "files of a table have rows"
            joined.append(
                JoinedFile(
                    replace(file, rows_of=rows_identity(run), partition=run[0].partition),
                    tuple(each.key for each in run),
                )
            )
        return replace(staged, joined=tuple(joined))

    def _rows(self, run: Run) -> Iterator[pa.Table]:
        for file in run:
            yield self._files.fetch(file, self._plan.schema, verify=True)
