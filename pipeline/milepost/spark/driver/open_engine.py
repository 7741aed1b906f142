"""Opening an engine makes the one that a plan's spec asks for."""

from __future__ import annotations

from milepost.epoch.plan import EpochPlan
from milepost.spark.driver.classic import ClassicEngine
from milepost.spark.driver.engine import Engine
from milepost.spark.driver.session import open_session


def load_engine(plan: EpochPlan) -> None:
    """Import the modules of the kind of session that a plan's spec asks for."""
    if plan.server is not None:
        import milepost.spark.driver.connect  # noqa: F401


def open_engine(plan: EpochPlan, kept: Engine | None = None) -> Engine:
    """Return the engine of a plan's spec, ready to run: the one that this process kept, if it still serves.

    Raises: EnvironmentUnusable.
    """
    if plan.server is None:
        return ClassicEngine(open_session(plan.spec.name, plan.spec.spark))
    from milepost.spark.driver.connect import RemoteEngine, open_remote  # they need gRPC, which the other kind does not

    return open_remote(plan, kept if isinstance(kept, RemoteEngine) else None)
