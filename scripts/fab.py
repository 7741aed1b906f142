"""Builds `.venv-fab`, what Airflow's FAB auth manager needs besides `.venv`: `python -m scripts.fab`."""

from __future__ import annotations

from scripts.bootstrap import ROOT, Environment
from scripts.linked_environments import LinkedEnvironments

_SAYS = "Airflow's FAB auth manager"
ENVIRONMENT = Environment(".venv-fab", "requirements-fab.txt", False, 150_000_000, f"{_SAYS}, 60 MB")
FAB = LinkedEnvironments(
    _SAYS,
    "scripts.fab",
    (ENVIRONMENT,),
    ROOT / ".milepost" / "fab-unreached.txt",
    only_add=True,
)

if __name__ == "__main__":
    FAB.build()
