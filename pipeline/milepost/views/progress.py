"""The sentence about a running epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milepost.epoch import counted, lasting
from milepost.views.text import printable

if TYPE_CHECKING:
    from milepost.jobmaster import EpochProgress

_STAGES: Mapping[str, str] = {
    "waiting": "waits for its driver",
    "starting": "its driver runs, and no task has ended yet",
    "reading": "reads its sources",
    "processing": "processes rows",
    "checking": "all tasks have ended: the quality gate and the sinks do their part",
    "committing": "commits",
    "publishing": "is committed, and tables publish it",
}
"""Stage -> what the epoch does."""


def progress_text(progress: EpochProgress) -> str:
    """Return what runs, for how long, and how far it is.

    Example: "Checkpoint 31 processes rows (latest); 12 s so far (90 % of 100 past epochs took at most 20 s); 3 of
    7 tasks ended, as far as the store shows.".
    """
    what = _STAGES[progress.stage.value]
    nodes = f" ({', '.join(map(printable, progress.nodes))})" if progress.nodes else ""
    colon = ":" if progress.stage.value in ("starting", "checking") else ""
    time = f"{_whole(progress.elapsed_ms)} so far"
    if progress.usual_ms is not None:
        longer = ", longer than usual" if progress.elapsed_ms > progress.usual_ms else ""
        epochs = counted(progress.usual_epochs, "past epoch")
        time += f"{longer} (90 % of {epochs} took at most {lasting(progress.usual_ms)})"
    parts = [f"Checkpoint {progress.checkpoint_id}{colon} {what}{nodes}", time]
    if progress.stage.value == "publishing":
        parts.append(f"{progress.tasks_done} of {counted(progress.tasks, 'table')} done")
    elif progress.tasks:
        parts.append(f"{progress.tasks_done} of {counted(progress.tasks, 'task')} ended, as far as the store shows")
    if progress.tries > 1:
        parts.append(f"try {progress.tries}")
    return "; ".join(parts) + "."


def _whole(milliseconds: int) -> str:
    """Format the elapsed time of a running epoch in whole seconds."""
    return lasting(milliseconds // 1000 * 1000)
