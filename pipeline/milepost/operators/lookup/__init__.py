"""Columns of a static source added to each row."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.lookup.run import Lookup as Lookup
    from milepost.operators.lookup.spec import LookupOperator as LookupOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
