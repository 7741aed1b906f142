"""The Checkpoints page, where Airflow looks for plugins."""

from __future__ import annotations

from milepost.airflow.page.checkpoints_page import CheckpointsPage

__all__ = ["CheckpointsPage"]
