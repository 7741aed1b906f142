"""The cost of an epoch, or of a month, is what was measured times prices: an estimate, not a bill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.epoch.timing.task_times import TaskTimes
from milepost.storage.requests import StoreRequests

if TYPE_CHECKING:
    from milepost.jobspec.job.prices_spec import PricesSpec

GB = 10**9
_MS_PER_HOUR = 3_600_000
_PER = 1000


@dataclass(frozen=True, slots=True)
class EpochCost:
    """An estimate of what one epoch cost; None: that has no price in the spec.

    Attributes:
        requests: of its tasks and its driver to S3. transfer: of the bytes that these received.
        compute: of Spark's tasks, each a core for as long as it ran: what a machine costs while it idles is not in it.
        total: of what has a price.
    """

    currency: str
    requests: float | None
    transfer: float | None
    compute: float | None
    total: float


@dataclass(frozen=True, slots=True)
class MonthCost:
    """An estimate of what a job costs in a month; None: without a price in the spec, or of a pace that is not known.

    Attributes:
        epochs: in a month; None: not known. by_schedule: the cron expression says so, else the newest epochs do.
        measured: how many epochs the figures are of, the newest.
        requests, transfer, compute: as in `EpochCost`. storage: of `stored_bytes`, for a month.
        stored_bytes: of state and tables, as the retained checkpoints refer to them, each object once.
        total: of what is known.
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
    """Return what an epoch cost by these prices; None without them."""
    if prices is None:
        return None
    made = sum(requests.values(), StoreRequests())
    asked = total([_of(prices.put_per_1000, made.puts, _PER), _of(prices.get_per_1000, made.gets, _PER)])
    transfer = _of(prices.out_per_gb, made.received_bytes, GB)
    compute = _of(prices.core_hour, sum(task.total_ms for task in tasks), _MS_PER_HOUR)
    return EpochCost(prices.currency, asked, transfer, compute, total([asked, transfer, compute]) or 0.0)


def total(parts: Iterable[float | None]) -> float | None:
    """Return the sum of what is known; None when nothing is."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _of(price: float | None, amount: int, per: int) -> float | None:
    return None if price is None else price * amount / per
