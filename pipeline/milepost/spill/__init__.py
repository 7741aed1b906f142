"""Rows that exceed memory: spilled to disk, and sorted there."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.spill.external_sort import align_by_key as align_by_key
    from milepost.spill.external_sort import joined_tables as joined_tables
    from milepost.spill.external_sort import ordered_rows as ordered_rows
    from milepost.spill.scratch_reading import reading_scratch as reading_scratch
    from milepost.spill.spilled_rows import Pieces as Pieces
    from milepost.spill.spilled_rows import RowSpill as RowSpill
    from milepost.spill.spilled_rows import SpilledRows as SpilledRows
    from milepost.spill.spilled_rows import read_pieces as read_pieces
else:
    __getattr__, __dir__ = lazy_exports(__name__)
