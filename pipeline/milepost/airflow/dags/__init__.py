"""Create the DAGs of a job from its spec. DAG files import the names below.

Airflow parses only files that contain `airflow` and `dag`. `from milepost.airflow.dags import load_jobs` has both.
"""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports
from milepost.extras import require, require_python, require_supported

require_python()
require("airflow", "making DAGs")
require_supported("spark", "running the epochs of these DAGs")

if TYPE_CHECKING:
    from milepost.airflow.dags.dag_factory import load_jobs as load_jobs
    from milepost.airflow.dags.task_group import MilepostTaskGroup as MilepostTaskGroup
else:
    __getattr__, __dir__ = lazy_exports(__name__)
