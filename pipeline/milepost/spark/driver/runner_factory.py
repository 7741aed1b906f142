"""Opening a runner is the door to Spark for whoever runs epochs: PySpark is imported here and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.extras import require

if TYPE_CHECKING:
    from milepost.spark.driver.runner import SparkEpochRunner


def spark_runner() -> SparkEpochRunner:
    """Return what runs epochs on Spark; it starts nothing until its first epoch.

    Raises:
        EnvironmentUnusable: PySpark, or what it needs, is not installed.
    """
    require("spark", "running an epoch")
    from milepost.spark.driver.runner import SparkEpochRunner

    return SparkEpochRunner()
