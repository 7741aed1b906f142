"""Create the DAGs of a job from its spec. DAG files import the names below.

Airflow parses only files that contain `airflow` and `dag`. `from milepost.airflow.dags import load_jobs` has both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from milepost.extras import require

require("airflow", "making DAGs")

if TYPE_CHECKING:
    from milepost.airflow.dags.dag_factory import load_jobs
    from milepost.airflow.dags.task_group import MilepostTaskGroup

__all__ = ["MilepostTaskGroup", "load_jobs"]

_HOMES = {"load_jobs": "dag_factory", "MilepostTaskGroup": "task_group"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
