"""Provider info: what Airflow lists Milepost as. Every Airflow process reads it, so it imports nothing."""

from __future__ import annotations


def get_provider_info() -> dict[str, str]:
    """Return what the entry point `apache_airflow_provider` promises; the package is named as its distribution is."""
    return {
        "package-name": "milepost",
        "name": "Milepost",
        "description": "Stateful, exactly-once data pipelines as scheduled micro-batch epochs on Airflow, Spark and S3",
    }
