"""Read the landed rows of a source: objects of the job, and data files of a table where they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadRecord, ObjectPart
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.file_columns import FileColumns
from milepost.sources.parquet.parquet_reader import ParquetReader


class LandedFileReader:
    """Reads landed objects, which have the declared columns, and data files, each with its own columns; picklable.

    Args:
        files: columns of each data file, by its URI, which is its key.
    """

    def __init__(self, declared: DeclaredColumns, files: Mapping[str, FileColumns]) -> None:
        self._declared, self.schema, self._files = declared, declared.schema, files

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part. Raises: as `ParquetReader.read_part`."""
        return self._reader(part).read_part(store, part)

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the readable rows of a part. Raises: as `ParquetReader.salvage_part`."""
        return self._reader(part).salvage_part(store, part)

    def _reader(self, part: ObjectPart) -> ParquetReader:
        columns = self._files.get(part.object.key)
        # The sizes of a table's columns were checked by the landing; repeated values may expand by any factor.
        return ParquetReader(self._declared, is_trusted=columns is not None, columns=columns)
