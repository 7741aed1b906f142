"""The table behind a sink: its owner, how it is prepared, and how it moves."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.table.object_inventory import table_objects as table_objects
else:
    __getattr__, __dir__ = lazy_exports(__name__)
