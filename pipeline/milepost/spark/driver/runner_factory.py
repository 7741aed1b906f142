"""Create the Spark runner. PySpark is first imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.extras import require

if TYPE_CHECKING:
    from milepost.spark.driver.runner import SparkEpochRunner


def spark_runner() -> SparkEpochRunner:
    """Return a runner of epochs on Spark. Spark is started by its first epoch.

    Raises:
        EnvironmentUnusable: PySpark or one of its dependencies is not installed.
    """
    require("spark", "running an epoch")
    from milepost.spark.driver.runner import SparkEpochRunner

    return SparkEpochRunner()
