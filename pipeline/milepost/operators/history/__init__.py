"""The versions of each key, each with the time during which it was valid."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.history.run import HistoryByKey as HistoryByKey
    from milepost.operators.history.spec import HistoryOperator as HistoryOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
