"""AWS Glue as a catalog that reaches its files through the object store. Importing it needs the AWS client."""

from __future__ import annotations

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from milepost.tables.iceberg.file_io import file_io


class StoreGlueCatalog(GlueCatalog):
    """A Glue catalog that always uses `StoreFileIO`."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return file_io(self.properties)
