"""The Iceberg table format: tables that every engine reads through their catalog (I14)."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.formats.iceberg.catalog_errors import translated_errors as translated_errors
    from milepost.sinks.formats.iceberg.catalogs import CatalogConfig as CatalogConfig
    from milepost.sinks.formats.iceberg.catalogs import CatalogKind as CatalogKind
    from milepost.sinks.formats.iceberg.catalogs import open_reader_catalog as open_reader_catalog
    from milepost.sinks.formats.iceberg.file_io import ReaderFileIO as ReaderFileIO
    from milepost.sinks.formats.iceberg.iceberg_format import IcebergFormat as IcebergFormat
    from milepost.sinks.formats.iceberg.schemas import UnsupportedType as UnsupportedType
    from milepost.sinks.formats.iceberg.schemas import arrow_type as arrow_type
else:
    __getattr__, __dir__ = lazy_exports(__name__)
