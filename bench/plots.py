"""The growth plots, as SVG. What is drawn comes from the raw results alone; drawing runs in `.venv-bench`.

`python -m bench.plots RESULTS.json FOLDER`
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.statistics import Spread


@dataclass(frozen=True, slots=True)
class Plot:
    """Epoch time and bytes against one thing.

    Attributes:
        group: parts `group/value` are its points; of `epochs`, one part's epochs are.
        file: its name. across: what grows. logarithmic: the horizontal axis.
    """

    group: str
    file: str
    title: str
    across: str
    epochs: bool = False
    logarithmic: bool = True

    def holds(self, part: str) -> bool:
        """Whether a part is drawn here."""
        return part.startswith(f"{self.group}/")


PLOTS = (
    Plot("rows", "rows.svg", "Epoch time and bytes against rows per epoch (1 M keys)", "rows per epoch"),
    Plot("keys", "keys.svg", "Epoch time and bytes against keys of state (1 M rows per epoch)", "keys of state"),
    Plot(
        "parallelism",
        "parallelism.svg",
        "Epoch time and bytes against parallelism (1 M rows, 1 M keys)",
        "subtasks",
        logarithmic=False,
    ),
    Plot("files", "files.svg", "Epoch time and bytes against input files (1 M rows per epoch)", "files per epoch"),
    Plot(
        "checkpoints",
        "checkpoints.svg",
        "Epoch time and bytes against completed checkpoints (100 k rows, 10 k keys)",
        "completed checkpoints",
        epochs=True,
        logarithmic=False,
    ),
)

Series = dict[str, list[tuple[float, float, float]]]
"""System -> points: where on the horizontal axis, wall seconds, bytes written for state."""


def series_of(plot: Plot, parts: dict[str, dict[str, Any]]) -> Series:
    """The points of a plot, in ascending order; of parts that failed there are none."""
    found: Series = {}
    for name, record in parts.items():
        if not plot.holds(name) or "failed" in record:
            continue
        for system, one in record["systems"].items():
            epochs = [epoch for epoch in one["epochs"] if epoch["counted"]]
            label = system.partition(":")[0]
            if plot.epochs:
                points = [(epoch["number"] + 1.0, epoch["wall_s"], _state_bytes(epoch)) for epoch in epochs]
            else:
                wall = Spread.of([epoch["wall_s"] for epoch in epochs]).median
                state = Spread.of([_state_bytes(epoch) for epoch in epochs]).median
                points = [(float(name.split("/", 1)[1]), wall, state)]
            found.setdefault(label, []).extend(points)
    return {label: sorted(points) for label, points in found.items()}


def draw(parts: dict[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Draw every plot that has points. Returns the files."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": "milepost", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.3}
    )
    pyplot = importlib.import_module("matplotlib.pyplot")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for plot in PLOTS:
        series = series_of(plot, parts)
        if not series:
            continue
        figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
        figure.suptitle(plot.title, fontsize=11)
        for label, points in series.items():
            across = [point[0] for point in points]
            drawn = {"label": label, "marker": "." if plot.epochs else "o", "linewidth": 1, "markersize": 4}
            axes[0].plot(across, [point[1] for point in points], **drawn)
            axes[1].plot(across, [point[2] / 1e6 for point in points], **drawn)
        for axis, unit in zip(axes, ("wall s per epoch", "state MB written per epoch"), strict=True):
            axis.set_xlabel(plot.across)
            axis.set_ylabel(unit)
            axis.set_ylim(bottom=0)
            if plot.logarithmic:
                axis.set_xscale("log")
            axis.legend(frameon=False, fontsize=8)
        file = folder / plot.file
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)
        files.append(file)
    return files


def _state_bytes(epoch: dict[str, Any]) -> float:
    return float(epoch["figures"].get("state_bytes", 0))


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["parts"], Path(sys.argv[2]))
