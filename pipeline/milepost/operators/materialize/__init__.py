"""The current row of each key of rows that are inserted and retracted."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.materialize.run import MaterializeByKey as MaterializeByKey
    from milepost.operators.materialize.spec import MaterializeOperator as MaterializeOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
