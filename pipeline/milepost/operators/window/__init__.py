"""Aggregates per key and event-time window: windows that touch or overlap, and sessions."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.operators.window.run import tumbling_bounds as tumbling_bounds
    from milepost.operators.window.sliding import FIRST_END as FIRST_END
    from milepost.operators.window.sliding import PANE_START as PANE_START
    from milepost.operators.window.spec import WindowOperator as WindowOperator
    from milepost.operators.window.windowed import microseconds as microseconds
else:
    __getattr__, __dir__ = lazy_exports(__name__)
