"""Functions over the rows of a partition, in an order."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.over.calls import FUNCTIONS as FUNCTIONS
    from milepost.operators.over.calls import MOST_ROWS as MOST_ROWS
    from milepost.operators.over.calls import NEIGHBOURS as NEIGHBOURS
    from milepost.operators.over.calls import RANKS as RANKS
    from milepost.operators.over.calls import UNAVAILABLE as UNAVAILABLE
    from milepost.operators.over.calls import OverCall as OverCall
    from milepost.operators.over.calls import RowFrame as RowFrame
    from milepost.operators.over.calls import over_type as over_type
    from milepost.operators.over.calls import parse_frame as parse_frame
    from milepost.operators.over.calls import parse_over as parse_over
    from milepost.operators.over.run import OverPartitions as OverPartitions
    from milepost.operators.over.spec import OverOperator as OverOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
