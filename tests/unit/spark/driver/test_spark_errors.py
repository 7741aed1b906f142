"""What Spark says of a failed job, as a refusal that names the way out."""

from __future__ import annotations

from pyspark.errors import PySparkException

from milepost.protocol.records.ids import CheckpointId
from milepost.spark.driver.spark_errors import refusal
from milepost_testkit import wording


def test_a_task_that_lacked_memory_is_refused_with_the_settings_that_help() -> None:
    said = "the job failed: [UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 90000000 bytes of memory, got 0."
    error = refusal(CheckpointId(3), PySparkException(message=said), ())
    assert said in error.message
    for name in ("spark.driver.memory", "spark.buffer_size", "spark.shuffle.sort.bypassMergeThreshold"):
        assert name in error.hint
    wording.describes(error)
