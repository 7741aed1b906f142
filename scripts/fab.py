"""Build `.venv-fab` with what Airflow's FAB auth manager needs in addition to `.venv`: `python -m scripts.fab`."""

from __future__ import annotations

from scripts.bootstrap import ROOT, Environment
from scripts.linked_environments import LinkedEnvironments
from scripts.unreached import Unreached

_WHAT = "Airflow's FAB auth manager"
ENVIRONMENT = Environment(".venv-fab", "requirements-fab.txt", False, 150_000_000, f"{_WHAT}, 60 MB")
FAB = LinkedEnvironments(
    "scripts.fab",
    (ENVIRONMENT,),
    Unreached(ROOT / ".milepost" / "fab-unreached.txt", _WHAT, "no package index was reached"),
    only_add=True,
)

if __name__ == "__main__":
    FAB.build()
