"""The files of a table by the records of a checkpoint, within a bound on the bytes of records."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.tables.records import StagedFile, TableContents

MAX_RECORD_BYTES = 8 << 20
"""Records beyond this size are not read: a file takes about 200 bytes in them, with statistics more."""


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """Files of a table.

    Attributes:
        files: all of them, in commit order; None: their records exceed the bound.
        newest: the files of the newest record that can be read, in commit order; () if even it exceeds the bound.
    """

    files: tuple[StagedFile, ...] | None
    newest: tuple[StagedFile, ...]

    @property
    def bytes(self) -> int | None:
        """Bytes of all files; None: unknown."""
        return None if self.files is None else sum(file.size for file in self.files)


def recorded_files(context: JobContext, contents: TableContents | None) -> RecordedFiles:
    """Return the files of a table; none for the empty table (None). Raises StateCorrupt."""
    if contents is None:
        return RecordedFiles((), ())
    if sum(record.size for record in contents.records) <= MAX_RECORD_BYTES:
        files = context.table_records.files(contents)
        return RecordedFiles(files, files)
    newest = contents.records[-1]
    if newest.size > MAX_RECORD_BYTES:
        return RecordedFiles(None, ())
    return RecordedFiles(None, context.table_records.newest(contents))
