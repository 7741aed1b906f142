"""The stable surface: what code outside of Milepost imports. Everything else may change.

A name is looked up when it is first asked for: a script that only opens a store waits for no job master.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.codec.records import to_json
    from milepost.errors import (
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
    from milepost.jobmaster.jobmaster import CheckpointDetails, CheckpointReport, JobMaster, Session
    from milepost.jobspec.load.load import LoadedJob, load_job
    from milepost.protocol.records.object_store import ObjectStore, StoreConfig
    from milepost.spark.driver.runner import SparkEpochRunner
    from milepost.storage.open import open_store

_HOMES = {
    "jobmaster.jobmaster": ("CheckpointDetails", "CheckpointReport", "JobMaster", "Session"),
    "codec.records": ("to_json",),
    "errors": (
        "Busy", "CheckpointError", "CommitConflict", "EnvironmentUnusable", "Fenced", "InvalidRequest", "NotFound",
        "StateCorrupt", "StoreUnavailable",
    ),
    "protocol.records.object_store": ("ObjectStore", "StoreConfig"),
    "jobspec.load.load": ("LoadedJob", "load_job"),
    "storage.open": ("open_store",),
}  # fmt: skip
_HOME_OF = {name: f"milepost.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [*_HOME_OF, "spark_runner"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"milepost.api has no {name!r}; it has {', '.join(sorted(__all__))}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def spark_runner() -> SparkEpochRunner:
    """Return what runs epochs on Spark, for `JobMaster.run` and `backfill`; PySpark is imported here and not before.

    Raises:
        EnvironmentUnusable: PySpark is not installed.
    """
    from milepost.spark.driver.open_runner import open_runner

    return open_runner()
