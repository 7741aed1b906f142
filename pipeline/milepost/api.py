"""The stable surface: what code outside of Milepost imports. Everything else may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.jobmaster.jobmaster import CheckpointDetails, CheckpointReport, JobMaster, Session
from milepost.protocol.codec.records import to_json
from milepost.protocol.records.errors import (
    Busy,
    CheckpointError,
    CommitConflict,
    EnvironmentUnusable,
    Fenced,
    InvalidRequest,
    NotFound,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spec.load.load import LoadedJob, load_job
from milepost.storage.open import open_store

if TYPE_CHECKING:
    from milepost.spark.driver.runner import SparkEpochRunner

__all__ = [
    "Busy",
    "CheckpointDetails",
    "CheckpointError",
    "CheckpointReport",
    "CommitConflict",
    "EnvironmentUnusable",
    "Fenced",
    "InvalidRequest",
    "JobMaster",
    "LoadedJob",
    "NotFound",
    "ObjectStore",
    "Session",
    "StateCorrupt",
    "StoreConfig",
    "StoreUnavailable",
    "load_job",
    "open_store",
    "spark_runner",
    "to_json",
]


def spark_runner() -> SparkEpochRunner:
    """Return what runs epochs on Spark, for `JobMaster.run` and `backfill`; PySpark is imported here and not before."""
    from milepost.spark.driver.runner import SparkEpochRunner

    return SparkEpochRunner()
