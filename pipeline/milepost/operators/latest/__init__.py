"""The newest row of each key."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.latest.newest import LatestByKey as LatestByKey
    from milepost.operators.latest.spec import LatestOperator as LatestOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
