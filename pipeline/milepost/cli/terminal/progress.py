"""Progress of an epoch on stderr: a moving bar on a terminal, a line every 5 s otherwise."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

from milepost.cli.terminal.output import use_color

_LINE_EVERY_S = 5.0


class EpochProgress:
    """A context manager that is called with the name of each step of an epoch."""

    def __init__(self) -> None:
        self._step = "start"
        self._started = time.monotonic()
        self._stopped = threading.Event()
        self._bar: Any = None
        self._task: Any = None
        self._lines: threading.Thread | None = None

    def __enter__(self) -> EpochProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            console = Console(file=sys.stderr, no_color=not use_color(sys.stderr))
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task(self._step, total=None)
            self._bar.start()
        else:
            # A step can take minutes without a call, so the lines have a clock of their own.
            self._lines = threading.Thread(target=self._print_lines, name="epoch-progress", daemon=True)
            self._lines.start()
        return self

    def __call__(self, step: str) -> None:
        """Show that `step` has begun."""
        self._step = step
        if self._bar is not None:
            self._bar.update(self._task, description=step)

    def _print_lines(self) -> None:
        while not self._stopped.wait(_LINE_EVERY_S):
            sys.stderr.write(f"{self._step} ({time.monotonic() - self._started:.0f} s)\n")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._lines is not None:
            self._lines.join()
        if self._bar is not None:
            self._bar.stop()
