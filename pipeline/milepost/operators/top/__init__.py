"""The first rows of each key in a given order."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.top.run import TopByKey as TopByKey
    from milepost.operators.top.spec import MOST_ROWS as MOST_ROWS
    from milepost.operators.top.spec import TopOperator as TopOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
