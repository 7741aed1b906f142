"""The Iceberg table format: tables that every engine reads through their catalog (I14)."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.formats.iceberg.iceberg_format import IcebergFormat as IcebergFormat
else:
    __getattr__, __dir__ = lazy_exports(__name__)
