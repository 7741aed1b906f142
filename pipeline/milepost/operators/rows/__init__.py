"""Rows as all operators see them: their columns, order, keys and retractions."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.rows.columns import find_rows as find_rows
    from milepost.operators.rows.columns import key_columns as key_columns
    from milepost.operators.rows.retractions import as_insertions as as_insertions
    from milepost.operators.rows.retractions import count_rows as count_rows
else:
    __getattr__, __dir__ = lazy_exports(__name__)
