"""Rows of two inputs with the same key: close in event time, or all that there are now."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.join.row_bound import RowBound as RowBound
    from milepost.operators.join.spec import JoinOperator as JoinOperator
    from milepost.operators.join.unmatched import LEFT_ALONE as LEFT_ALONE
else:
    __getattr__, __dir__ = lazy_exports(__name__)
