"""The DAGs of a job, made from its spec."""

from milepost.extras import require

require("airflow", "making DAGs")
