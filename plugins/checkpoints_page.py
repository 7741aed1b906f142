"""The plugin with Milepost's pages, for an Airflow without an installed Milepost package.

An installed Milepost registers the plugin by an entry point. Airflow reports a second plugin of the same name as an
import error, so this file registers it only if there is no entry point.
"""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="milepost"):
    from milepost.airflow.page import CheckpointsPage

    __all__ = ["CheckpointsPage"]
