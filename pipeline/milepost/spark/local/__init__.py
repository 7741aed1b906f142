"""Run an epoch's tasks in this process, for tests of a job."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.spark.local.local_runner import LocalRunner as LocalRunner
else:
    __getattr__, __dir__ = lazy_exports(__name__)
