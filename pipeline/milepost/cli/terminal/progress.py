"""Show the progress of an epoch on stderr: a bar on a terminal, else a line every 5 s."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from milepost.cli.terminal.output import use_color
from milepost.epoch import counted
from milepost.errors import CheckpointError

_LINE_EVERY_S = 5.0
_MOVE_EVERY_S = 0.2
_LONGEST_S = 1.0
"""How long the end of an epoch waits for a pending estimate."""

_MEGABYTE = 1_000_000

_MOST_PERCENT = 99
"""Highest percentage of a step that is still running."""


class EpochProgress:
    """Display the steps of an epoch. A context manager to call with the name of each step.

    A step with an estimate is shown with its percentage and remaining time.

    Args:
        first_after_s: when the first line is shown; None: after 5 s, as every later one.
    """

    def __init__(self, first_after_s: float | None = None) -> None:
        self._first_after_s = _LINE_EVERY_S if first_after_s is None else first_after_s
        self._step = "start"
        self._started = self._step_began = time.monotonic()
        self._estimate: Callable[[], int | None] | None = None
        self._expected_s: float | None = None
        self._stopped = threading.Event()
        self._bar: Any = None
        self._task: Any = None
        # A step can take minutes without a call, so a thread refreshes the display.
        self._clock = threading.Thread(target=self._show_again, name="epoch-progress", daemon=True)

    def __enter__(self) -> EpochProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            console = Console(file=sys.stderr, no_color=not use_color(sys.stderr))
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[estimate]}", markup=False),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task(self._step, total=None, estimate="")
            self._bar.start()
        self._clock.start()
        return self

    def __call__(self, step: str) -> None:
        """Show that `step` has begun."""
        self._step, self._step_began = step, time.monotonic()
        self._estimate = self._expected_s = None
        if self._bar is not None:
            self._bar.update(self._task, description=step, total=None, completed=0, estimate="")

    def expect(self, estimate: Callable[[], int | None]) -> None:
        """Show the progress of the current step by an estimate in ms, which the display thread computes."""
        self._estimate = estimate

    def _show_again(self) -> None:
        every_s = self._first_after_s if self._bar is None else _MOVE_EVERY_S
        while not self._stopped.wait(every_s):
            every_s = _LINE_EVERY_S if self._bar is None else _MOVE_EVERY_S
            self._read_estimate()
            if self._stopped.is_set():
                return
            percent, left = self._estimated()
            if self._bar is None:
                rest = f", {left}" if left else ""
                sys.stderr.write(f"{self._step} ({time.monotonic() - self._started:.0f} s{rest})\n")
                sys.stderr.flush()
            elif percent is not None:
                self._bar.update(self._task, total=100, completed=percent, estimate=left)

    def _read_estimate(self) -> None:
        estimate, self._estimate = self._estimate, None
        if estimate is None:
            return
        began, expected_ms = self._step_began, None
        with suppress(CheckpointError):  # shown without an estimate; the epoch reports the error itself
            expected_ms = estimate()
        if expected_ms and began == self._step_began:
            self._expected_s = expected_ms / 1000

    def _estimated(self) -> tuple[int | None, str]:
        """Return the progress of the current step, in percent and as text; None, "": there is no estimate."""
        expected_s = self._expected_s
        if expected_s is None:
            return None, ""
        spent_s = time.monotonic() - self._step_began
        percent = min(_MOST_PERCENT, int(100 * spent_s / expected_s))
        if spent_s >= expected_s:
            return percent, f"{percent}%, longer than the epoch before suggests"
        return percent, f"{percent}%, about {expected_s - spent_s:.0f} s left"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._clock.join(_LONGEST_S)
        if self._bar is not None:
            self._bar.stop()


def copied_to(progress: Callable[[str], None]) -> Callable[[int], None]:
    """Return a function to call with the bytes of each copied object. It shows the totals as a step."""
    objects = size = 0

    def copied(more: int) -> None:
        nonlocal objects, size
        objects, size = objects + 1, size + more
        progress(f"copied {counted(objects, 'object')}, {size / _MEGABYTE:.1f} MB")

    return copied
