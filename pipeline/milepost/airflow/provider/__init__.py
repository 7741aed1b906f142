"""Provider info for Airflow. Every Airflow process imports this module, so it imports nothing."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider info for the entry point `apache_airflow_provider`."""
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
