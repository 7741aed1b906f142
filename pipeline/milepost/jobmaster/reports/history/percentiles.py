"""Percentiles of epochs tell what is usual of a job, and what is rare, as Flink's summary does."""

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
"""Figures of epochs whose percentiles are told, before those of the phases."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of one figure; between two values they are interpolated, as SQL's `percentile_cont` does.

    Attributes:
        epochs: that have the figure.
    """

    epochs: int
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def percentiles_of(epochs: Sequence[EpochFigures]) -> dict[str, Percentiles]:
    """Return the percentiles of each figure, by its name, and of each phase that was measured; {} without epochs."""
    figures: dict[str, list[Any]] = {name: [getattr(one, name) for one in epochs] for name in _FIGURES}
    for one in epochs:
        for phase, spent in (one.phases or {}).items():
            figures.setdefault(phase, []).append(spent)
    known = {name: sorted(value for value in values if isinstance(value, int)) for name, values in figures.items()}
    return {name: _of(values) for name, values in known.items() if values}


def _of(values: Sequence[int]) -> Percentiles:
    """Args: values: ascending, at least one."""
    p50, p90, p95, p99 = (_at(values, share) for share in (0.5, 0.9, 0.95, 0.99))
    return Percentiles(len(values), values[0], p50, p90, p95, p99, values[-1])


def _at(values: Sequence[int], share: float) -> float:
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)
