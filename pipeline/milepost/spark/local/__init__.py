"""Run an epoch's tasks in this process, to test a job and to trace its rows."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.spark.local.local_runner import LocalRunner as LocalRunner
    from milepost.spark.local.tracer import LocalTracer as LocalTracer
else:
    __getattr__, __dir__ = lazy_exports(__name__)
