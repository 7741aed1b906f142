"""The clock of an epoch's steps measures each from its beginning to that of the next: its time and its requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from milepost.storage import REQUEST_COUNTER, StoreRequests


@runtime_checkable
class ExpectsTimes(Protocol):
    """An observer of steps that shows how long the current one is expected to take."""

    def expect(self, estimate: Callable[[], int | None]) -> None:
        """Take an estimate of the current step in ms, None if there is none. It may be computed on another thread."""


@dataclass(slots=True)
class StepClock:
    """Measures steps that follow one another; is told each step as it begins, and tells it on.

    Attributes:
        tell: told the steps as well. started_ms: wall clock of this machine, ms since the epoch.
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
        """End the step before it, and begin this one.

        Args:
            detail: what else is told of it.
        """
        self._made_before = self.end()
        self._step, self._since = step, time.monotonic()
        self._begun.append((step.partition(":")[0], self.now_ms))
        if self.tell is not None:
            self.tell(f"{step}: {detail}" if detail else step)

    def expect(self, estimate: Callable[[], int | None]) -> None:
        """Pass an estimate of the current step to the observer, if it shows one; else nothing is computed."""
        observer: object = self.tell
        if isinstance(observer, ExpectsTimes):
            observer.expect(estimate)

    def spent(self, step: str, seconds: float) -> None:
        """Take in a part of the step that is being measured, which somebody else has measured beside others."""
        self._spent[step] = self._spent.get(step, 0.0) + seconds

    def end(self) -> StoreRequests:
        """End the step that is being measured, if there is one; return what the process has asked until then."""
        made = REQUEST_COUNTER.totals()
        if self._step is not None:
            self._spent[self._step] = self._spent.get(self._step, 0.0) + time.monotonic() - self._since
            self._made[self._step] = self.requests(self._step) + (made - self._made_before)
            self._step = None
        return made

    def ms(self, *steps: str) -> int:
        """Milliseconds of the ended steps of these names."""
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
        """The steps that were told, in order, without details; and when each began, by this clock."""
        return tuple(self._begun)

    @property
    def now_ms(self) -> int:
        """Now, as this clock sees it: its start and what has passed since."""
        return self.started_ms + round((time.monotonic() - self._started) * 1000)


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """What the trigger of an epoch measured. Attributes: started_ms: wall clock, ms since the epoch."""

    started_ms: int
    plan_ms: int
    requests: StoreRequests = field(default_factory=StoreRequests)


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Requests of an epoch's tasks that no record of the checkpoint holds yet: they are on its bill nevertheless."""

    requests: StoreRequests = field(default_factory=StoreRequests)
