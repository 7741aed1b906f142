"""The Delta table format, committed with the `deltalake` library."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.formats.delta.delta_format import DeltaFormat as DeltaFormat
else:
    __getattr__, __dir__ = lazy_exports(__name__)
