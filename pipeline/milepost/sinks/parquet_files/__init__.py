"""Parquet files of tables: encoding, reading, schemas, partitions and deletes."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.parquet_files.deletes import without_deletes as without_deletes
    from milepost.sinks.parquet_files.table_files import ReadOptions as ReadOptions
    from milepost.sinks.parquet_files.table_files import TableFiles as TableFiles
else:
    __getattr__, __dir__ = lazy_exports(__name__)
