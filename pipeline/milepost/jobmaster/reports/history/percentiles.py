"""Compute percentiles of epoch figures, like Flink's checkpoint summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from milepost.jobmaster.reports.history.series import EpochFigures

_FIGURES = (
    *("duration_ms", "rows_in", "rows_out", "late_rows", "checkpointed_bytes", "state_bytes", "in_flight_bytes"),
    "lag_ms",
)
"""Figures with percentiles, listed before the phases."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of one figure, interpolated between values like SQL's `percentile_cont`.

    Attributes:
        epochs: number of epochs that have the figure.
    """

    epochs: int
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def percentiles_of(epochs: Sequence[EpochFigures]) -> dict[str, Percentiles]:
    """Return the percentiles of each figure and each measured phase, by name; {} without epochs."""
    figures: dict[str, list[Any]] = {name: [getattr(epoch, name) for epoch in epochs] for name in _FIGURES}
    for epoch in epochs:
        for phase, spent in (epoch.phases or {}).items():
            figures.setdefault(phase, []).append(spent)
    measured = {name: sorted(value for value in values if isinstance(value, int)) for name, values in figures.items()}
    return {name: _percentiles(values) for name, values in measured.items() if values}


def _percentiles(values: Sequence[int]) -> Percentiles:
    """Args: values: ascending, at least one."""
    p50, p90, p95, p99 = (percentile(values, share) for share in (0.5, 0.9, 0.95, 0.99))
    return Percentiles(len(values), values[0], p50, p90, p95, p99, values[-1])


def percentile(values: Sequence[int], share: float) -> float:
    """Return a percentile, interpolated between values: of 10, 20 and 40 the share 0.75 is 30.

    Args:
        values: ascending, at least one. share: 0 to 1.
    """
    position = share * (len(values) - 1)
    below = math.floor(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (position - below)
