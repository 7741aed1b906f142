"""Managed Parquet tables, which only Milepost reads."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.formats.parquet.parquet_format import ParquetFormat as ParquetFormat
else:
    __getattr__, __dir__ = lazy_exports(__name__)
