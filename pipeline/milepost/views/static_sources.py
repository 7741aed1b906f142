"""The columns of static sources, in a checkpoint and in a job's health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.views.text import counts, printable, show_bytes, show_time
from milepost.views.tree import Figure

if TYPE_CHECKING:
    from milepost.jobmaster import StaticSourceDetails

STATIC_COLUMNS = ("source", "rows", "objects", "newest object", "copy", "with checkpoint")


def static_source_cells(source: StaticSourceDetails) -> tuple[str, ...]:
    """Return the cells of `STATIC_COLUMNS` after the name."""
    copied = (show_time(source.newest_object), show_bytes(source.copy_bytes), Figure(printable(source.copied_by)))
    return (*counts(source.rows, len(source.objects)), *copied)
