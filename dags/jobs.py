"""Create the DAGs `<job>__epoch` and `<job>__operate` for each YAML file directly in the config folder."""

from __future__ import annotations

import os

from milepost.airflow.dags import load_jobs

load_jobs(globals(), os.environ.get("MILEPOST_CONFIG") or "../config")
