"""Rows joined with the current version of their key."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.asof.spec import AsofOperator as AsofOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
