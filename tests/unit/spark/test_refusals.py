"""What Spark says of a failed job, as a refusal that names the way out."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from pipeline.protocol.ids import CheckpointId
from pipeline.spark.refusals import refusal


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (
            "the job failed: [UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 90000000 bytes of memory, got 0.",
            ("spark.driver.memory", "spark.buffer_size", "spark.shuffle.sort.bypassMergeThreshold"),
        ),
        (
            "the job failed: org.apache.spark.SparkException: Python worker exited unexpectedly.",
            ("spark.executor.pyspark.memory",),
        ),
    ],
)
def test_a_task_that_lacked_memory_is_refused_with_the_settings_that_help(said: str, named: tuple[str, ...]) -> None:
    error = refusal(CheckpointId(3), PySparkException(message=said), {})
    assert said in error.message
    assert [name for name in named if name in error.hint] == list(named)
    assert "Nothing of this epoch is visible." in error.message
