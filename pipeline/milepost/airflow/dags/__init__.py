"""The DAGs of a job, made from its spec."""

from milepost.extras import needs

with needs("airflow", "making DAGs"):
    import airflow.sdk  # noqa: F401
