"""Running aggregates per key."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.aggregate.over_updates import AggregateOverUpdates as AggregateOverUpdates
    from milepost.operators.aggregate.run import AggregateByKey as AggregateByKey
    from milepost.operators.aggregate.spec import AggregateOperator as AggregateOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
