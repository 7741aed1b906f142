"""Open the engine that a plan's spec requires."""

from __future__ import annotations

from milepost.epoch import EpochPlan
from milepost.spark.driver.engines.classic import ClassicEngine
from milepost.spark.driver.engines.engine import Engine
from milepost.spark.driver.engines.session import open_session


def load_engine(plan: EpochPlan) -> None:
    """Import the modules of the kind of session that a plan's spec requires."""
    if plan.server is not None:
        import milepost.spark.driver.engines.connect  # noqa: F401


def open_engine(plan: EpochPlan, kept: Engine | None) -> Engine:
    """Return the engine of a plan's spec, ready to run. Reuse `kept` if it still fits. Raises EnvironmentUnusable."""
    if plan.server is None:
        return ClassicEngine(open_session(plan.spec.name, plan.spec.spark))
    from milepost.spark.driver.engines.connect import (  # they import gRPC, which a classic session does not need
        RemoteEngine,
        open_remote,
    )

    return open_remote(plan, kept if isinstance(kept, RemoteEngine) else None)
