"""Aggregates per key: their accumulators, over rows that stay and over updates."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.aggregation.aggregates import ROWS_COLUMN as ROWS_COLUMN
    from milepost.operators.aggregation.aggregates import Aggregates as Aggregates
    from milepost.operators.aggregation.aggregates import timed_calls as timed_calls
    from milepost.operators.aggregation.cached_extremes import NEGATIVE_ZEROS as NEGATIVE_ZEROS
    from milepost.operators.aggregation.distinct_values import VALUE_COLUMN as VALUE_COLUMN
    from milepost.operators.aggregation.value_tables import BY_COLUMN as BY_COLUMN
else:
    __getattr__, __dir__ = lazy_exports(__name__)
