"""Iceberg tables: their catalogs, locations, files and types, and the errors of catalogs."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.tables.iceberg.catalog_errors import translated_errors as translated_errors
    from milepost.tables.iceberg.catalogs import CatalogConfig as CatalogConfig
    from milepost.tables.iceberg.catalogs import CatalogKind as CatalogKind
    from milepost.tables.iceberg.catalogs import open_catalog as open_catalog
    from milepost.tables.iceberg.catalogs import open_reader_catalog as open_reader_catalog
    from milepost.tables.iceberg.column_types import UnsupportedType as UnsupportedType
    from milepost.tables.iceberg.column_types import arrow_field as arrow_field
    from milepost.tables.iceberg.column_types import arrow_type as arrow_type
    from milepost.tables.iceberg.column_types import iceberg_field as iceberg_field
    from milepost.tables.iceberg.file_io import ReaderFileIO as ReaderFileIO
    from milepost.tables.iceberg.locations import key_below as key_below
    from milepost.tables.iceberg.locations import normal_location as normal_location
    from milepost.tables.iceberg.locations import table_location as table_location
else:
    __getattr__, __dir__ = lazy_exports(__name__)
