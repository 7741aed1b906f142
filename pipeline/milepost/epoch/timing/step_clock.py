"""Clock that measures the time and the S3 requests of consecutive steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from milepost.storage import REQUEST_COUNTER, StoreRequests


@runtime_checkable
class ExpectsTimes(Protocol):
    """An observer of steps that shows the expected duration of the current step."""

    def expect(self, estimate: Callable[[], int | None]) -> None:
        """Accept an estimate of the current step in ms. It may be None, and may be computed on another thread."""


@dataclass(slots=True)
class StepClock:
    """Measures consecutive steps, and forwards each to an observer.

    Each step ends when the next one begins, or by `end`:

        clock("plan")             "plan" starts
        clock("run", "4 tasks")   "plan" ends, "run" starts; the observer receives "run: 4 tasks"
        clock.end()               "run" ends; `steps` has the milliseconds of "plan" and "run"

    Attributes:
        tell: observer that receives each step as it begins.
        started_ms: wall clock of this machine, ms since the epoch.
    """

    tell: Callable[[str], None] | None = None
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    _started: float = field(default_factory=time.monotonic)
    _step: str | None = None
    _since: float = 0.0
    _spent: dict[str, float] = field(default_factory=dict)
    _made_before: StoreRequests = field(default_factory=StoreRequests)
    _made: dict[str, StoreRequests] = field(default_factory=dict)
    _begun: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, step: str, detail: str = "") -> None:
        """End the current step and begin this one.

        Args:
            detail: text for the observer, appended to the step.
        """
        self._made_before = self.end()
        self._step, self._since = step, time.monotonic()
        self._begun.append((step.partition(":")[0], self.now_ms))
        if self.tell is not None:
            self.tell(f"{step}: {detail}" if detail else step)

    def expect(self, estimate: Callable[[], int | None]) -> None:
        """Pass an estimate of the current step to the observer if it shows estimates. Otherwise compute nothing."""
        observer: object = self.tell
        if isinstance(observer, ExpectsTimes):
            observer.expect(estimate)

    def spent(self, step: str, seconds: float) -> None:
        """Add time to a step that was measured elsewhere, concurrently with other steps."""
        self._spent[step] = self._spent.get(step, 0.0) + seconds

    def end(self) -> StoreRequests:
        """End the current step, if there is one. Return the total of S3 requests of this process so far."""
        made = REQUEST_COUNTER.totals()
        if self._step is not None:
            self._spent[self._step] = self._spent.get(self._step, 0.0) + time.monotonic() - self._since
            self._made[self._step] = self.requests(self._step) + (made - self._made_before)
            self._step = None
        return made

    def ms(self, *steps: str) -> int:
        """Return the milliseconds of the ended steps of these names."""
        return round(sum(self._spent.get(step, 0.0) for step in steps) * 1000)

    def requests(self, *steps: str) -> StoreRequests:
        """Return the requests that this process made to S3 in the ended steps of these names."""
        return sum((self._made.get(step, StoreRequests()) for step in steps), StoreRequests())

    @property
    def steps(self) -> dict[str, int]:
        """Milliseconds of every ended step."""
        return {step: self.ms(step) for step in self._spent}

    @property
    def begun(self) -> tuple[tuple[str, int], ...]:
        """Steps in order, without the text after a colon, each with its start by this clock, ms since the epoch."""
        return tuple(self._begun)

    @property
    def now_ms(self) -> int:
        """Current time by this clock: `started_ms` plus the monotonic time since then."""
        return self.started_ms + round((time.monotonic() - self._started) * 1000)


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Measurements of an epoch's trigger. Attributes: started_ms: wall clock, ms since the epoch."""

    started_ms: int
    plan_ms: int
    requests: StoreRequests = field(default_factory=StoreRequests)


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Requests of an epoch's tasks that no record of the checkpoint contains yet. The epoch's cost includes them."""

    requests: StoreRequests = field(default_factory=StoreRequests)
