"""Milepost's pages in Airflow's UI, as an Airflow plugin."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.airflow.page.checkpoints_page import CheckpointsPage as CheckpointsPage
else:
    __getattr__, __dir__ = lazy_exports(__name__)
