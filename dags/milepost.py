"""One DAG per job spec: `<job>__epoch` for every YAML file directly in the config folder (a dag of Airflow's)."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.orchestration.dag_factory import epoch_dags

CONFIG = Path(os.environ.get("MILEPOST_CONFIG") or Path(__file__).resolve().parent.parent / "config")

globals().update(epoch_dags(CONFIG))
