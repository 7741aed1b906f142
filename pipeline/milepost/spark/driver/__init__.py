"""The driver side of an epoch: its session, job graph and errors."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.spark.driver.runner import SparkEpochRunner as SparkEpochRunner
    from milepost.spark.driver.runner_factory import spark_runner as spark_runner
else:
    __getattr__, __dir__ = lazy_exports(__name__)
