"""The Checkpoints page, where Airflow looks for plugins.

An installed Milepost offers it by an entry point. Airflow takes one plugin per name, and reports a second one as an
import error: here it is offered only where no entry point does that.
"""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="milepost"):
    from milepost.airflow.page.checkpoints_page import CheckpointsPage

    __all__ = ["CheckpointsPage"]
