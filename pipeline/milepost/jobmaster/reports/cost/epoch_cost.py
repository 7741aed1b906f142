"""Estimate the cost of an epoch: measured usage times prices. Not a bill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.epoch.timing import TaskTimes
from milepost.storage import StoreRequests

if TYPE_CHECKING:
    from milepost.jobspec.job import PricesSpec

GB = 10**9
_MS_PER_HOUR = 3_600_000
_PER = 1000


@dataclass(frozen=True, slots=True)
class EpochCost:
    """Estimated cost of one epoch. A part is None if the spec has no price for it.

    Attributes:
        requests: to S3, by tasks and driver. transfer: of the bytes received from S3.
        compute: of Spark's tasks, one core each for their run time. Idle machines are not included.
        total: of all parts with a price.
    """

    currency: str
    requests: float | None
    transfer: float | None
    compute: float | None
    total: float


@dataclass(frozen=True, slots=True)
class MonthCost:
    """Estimated cost of a job per month. A part is None without a price in the spec, or if the pace is unknown.

    Attributes:
        epochs: per month; None: unknown. by_schedule: derived from the cron expression, else from the newest epochs.
        measured: number of epochs, the newest, that the figures are based on.
        requests, transfer, compute: as in `EpochCost`. storage: of `stored_bytes`, for a month.
        stored_bytes: state and tables that retained checkpoints refer to, each object once.
        total: of all known parts.
    """

    currency: str
    epochs: float | None
    by_schedule: bool
    measured: int
    requests: float | None
    transfer: float | None
    compute: float | None
    storage: float | None
    stored_bytes: int
    total: float


def epoch_cost(
    prices: PricesSpec | None, requests: Mapping[str, StoreRequests], tasks: Sequence[TaskTimes]
) -> EpochCost | None:
    """Return the cost of an epoch; None without prices.

    Example: at 0.005 per 1,000 puts and 0.0004 per 1,000 gets, 400 puts and 1,000 gets cost 0.0024. At 0.05 per core
    hour, tasks of 720,000 ms in total cost 0.01.
    """
    return cost_of(prices, sum(requests.values(), StoreRequests()), sum(task.total_ms for task in tasks))


def cost_of(prices: PricesSpec | None, usage: StoreRequests, task_ms: int) -> EpochCost | None:
    """Return the cost of an epoch from its totals; None without prices. task_ms: run time of all its tasks."""
    if prices is None:
        return None
    request_cost = total([_cost(prices.put_per_1000, usage.puts, _PER), _cost(prices.get_per_1000, usage.gets, _PER)])
    transfer = _cost(prices.out_per_gb, usage.received_bytes, GB)
    compute = _cost(prices.core_hour, task_ms, _MS_PER_HOUR)
    return EpochCost(prices.currency, request_cost, transfer, compute, total([request_cost, transfer, compute]) or 0.0)


def total(parts: Iterable[float | None]) -> float | None:
    """Return the sum of the known parts; None if no part is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _cost(price: float | None, amount: int, per: int) -> float | None:
    return None if price is None else price * amount / per
