"""Parquet files, read by row groups."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.parquet.landed_file_reader import LandedFileReader as LandedFileReader
    from milepost.sources.parquet.parquet_reader import ParquetReader as ParquetReader
else:
    __getattr__, __dir__ = lazy_exports(__name__)
