"""The DAGs that Airflow sees: `<job>__epoch`, and those with a form, for each YAML file right in the config folder."""

from __future__ import annotations

import os
from pathlib import Path

from milepost.airflow.dags.dag_factory import job_dags

CONFIG = Path(os.environ.get("MILEPOST_CONFIG") or Path(__file__).resolve().parent.parent / "config")

globals().update(job_dags(CONFIG))
