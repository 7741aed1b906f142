"""Statistics of keyed state: live rows, due rows and timers."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.state.statistics.row_statistics import Times as Times
else:
    __getattr__, __dir__ = lazy_exports(__name__)
