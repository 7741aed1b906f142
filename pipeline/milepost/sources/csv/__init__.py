"""CSV: files with a header, or with column names from the options."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.csv.csv_reader import CsvReader as CsvReader
else:
    __getattr__, __dir__ = lazy_exports(__name__)
