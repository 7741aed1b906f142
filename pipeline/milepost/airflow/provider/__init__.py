"""Provider info: what Airflow lists Milepost as. Every Airflow process reads it, so it imports nothing."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return what the entry point `apache_airflow_provider` promises; the package is named as its distribution is."""
    return {
        "package-name": "milepost",
        "name": "Milepost",
        "description": "Stateful, exactly-once data pipelines as scheduled micro-batch epochs on Airflow, Spark and S3",
        "connection-types": [
            {
                "connection-type": "milepost_s3",
                "hook-name": "S3 (Milepost)",
                "hook-class-name": "milepost.airflow.provider.hooks.S3Hook",
            },
            {
                "connection-type": "milepost_spark",
                "hook-name": "Spark Connect (Milepost)",
                "hook-class-name": "milepost.airflow.provider.hooks.SparkHook",
            },
        ],
        "extra-links": ["milepost.airflow.operators.checkpoint_link.CheckpointLink"],
        "asset-uris": [{"schemes": ["milepost"], "handler": "milepost.airflow.provider.asset_uris.sanitize_uri"}],
    }
