"""The first row of each key."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.deduplicate.spec import DeduplicateOperator as DeduplicateOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
