"""The DAGs that Airflow sees: `<job>__epoch`, and those with a form, for each YAML file right in the config folder."""

from __future__ import annotations

import os

from milepost.airflow.dags import load_jobs

load_jobs(globals(), os.environ.get("MILEPOST_CONFIG") or "../config")
