"""Row-wise SQL."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.sql.spec import SelectSpec as SelectSpec
    from milepost.operators.sql.spec import SqlOperator as SqlOperator
else:
    __getattr__, __dir__ = lazy_exports(__name__)
