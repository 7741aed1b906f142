"""Rows of two inputs that belong together: within an interval, as of a time, or looked up."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.joins.lookup import Lookup as Lookup
else:
    __getattr__, __dir__ = lazy_exports(__name__)
