"""Rows of two inputs that are close in event time."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.join.spec import LEFT_ALONE as LEFT_ALONE
    from milepost.operators.join.spec import JoinOperator as JoinOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
