"""The growth plots, as SVG. What is drawn comes from the raw results alone; drawing runs in `.venv-bench`.

`python -m bench.reports.plots RESULTS.json FOLDER`
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.reports.statistics import Spread

NAMES = {
    "milepost": "Milepost",
    "milepost-process": "Milepost, cold JVM",
    "milepost-served": "Milepost, running server",
    "spark-hdfs": "Structured Streaming",
    "spark-hdfs-process": "availableNow, cold JVM",
}
"""Whose epochs are drawn, and what they are called there; HDFS is the state store of Structured Streaming's."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Epoch time and bytes against one thing.

    Attributes:
        group: parts `group/value` are its points; of `epochs`, one part's epochs are.
        file: its name. across: what grows. logarithmic: both axes, else none.
        also: further parts, and where on the horizontal axis they stand.
    """

    group: str
    file: str
    title: str
    across: str
    epochs: bool = False
    logarithmic: bool = True
    also: Mapping[str, float] = field(default_factory=dict)

    def holds(self, part: str) -> bool:
        """Whether a part is drawn here."""
        return part.startswith(f"{self.group}/") or part in self.also

    def place(self, part: str) -> float:
        """Where on the horizontal axis a part stands."""
        return self.also[part] if part in self.also else float(part.split("/", 1)[1])


PLOTS = (
    Plot(
        "rows",
        "rows.svg",
        "Epoch time and bytes against rows per epoch (1 M keys)",
        "rows per epoch",
        also={"workload/keyed-1m": 1e6},
    ),
    Plot(
        "keys",
        "keys.svg",
        "Epoch time and bytes against keys of state (1 M rows per epoch)",
        "keys of state",
        also={"workload/keyed-10k": 1e4, "workload/keyed-1m": 1e6, "workload/keyed-5m": 5e6},
    ),
    Plot(
        "parallelism",
        "parallelism.svg",
        "Epoch time and bytes against parallelism (1 M rows, 1 M keys, two cores)",
        "subtasks",
        logarithmic=False,
        also={"workload/keyed-1m": 2},
    ),
    Plot(
        "files",
        "files.svg",
        "Epoch time and bytes against input files (1 M rows per epoch, 1 M keys)",
        "files per epoch",
        also={"workload/keyed-1m": 4},
    ),
    Plot(
        "checkpoints",
        "checkpoints.svg",
        "Epoch time and bytes against retained checkpoints (100 k rows, 10 k keys)",
        "retained checkpoints",
        epochs=True,
        logarithmic=False,
    ),
    Plot(
        "aged",
        "aged.svg",
        "Epoch time and bytes against completed checkpoints, a new process each (1 M rows, 1 M keys)",
        "completed checkpoints",
        epochs=True,
        logarithmic=False,
    ),
)

Series = dict[str, list[tuple[float, float, float]]]
"""Name of a system -> points: where on the horizontal axis, wall seconds, bytes written for state."""


def series_of(plot: Plot, parts: dict[str, dict[str, Any]]) -> Series:
    """The points of a plot, in ascending order; of parts that failed there are none, and one point is no line."""
    found: Series = {}
    for name, record in parts.items():
        if not plot.holds(name) or "failed" in record:
            continue
        for system, one in record["systems"].items():
            label = NAMES.get(system.partition(":")[0])
            if label is None:
                continue
            if plot.epochs:
                # A system's first epoch fills the state, or catches up: it is none of those that grow.
                points = [(epoch["number"] + 1.0, epoch["wall_s"], _state_bytes(epoch)) for epoch in one["epochs"][1:]]
            else:
                epochs = [epoch for epoch in one["epochs"] if epoch["counted"]]
                wall = Spread.of([epoch["wall_s"] for epoch in epochs]).median
                state = Spread.of([_state_bytes(epoch) for epoch in epochs]).median
                points = [(plot.place(name), wall, state)]
            found.setdefault(label, []).extend(points)
    return {label: sorted(points) for label, points in found.items() if len(points) > 1}


def draw(parts: dict[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Draw every plot that has points. Returns the files."""
    pyplot, ticker = _plotter(), importlib.import_module("matplotlib.ticker")
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
            if plot.logarithmic:
                axis.set_xscale("log")
                axis.set_yscale("log")
                low, high = axis.get_ylim()
                axis.set_ylim(low / 1.5, high * 1.5)
                for one, shown in ((axis.xaxis, (1.0,)), (axis.yaxis, (1.0, 2.0, 5.0))):
                    one.set_major_locator(ticker.LogLocator(subs=shown))
                    one.set_major_formatter(ticker.FuncFormatter(_plain))
                    one.set_minor_formatter(ticker.NullFormatter())
            else:
                axis.set_ylim(bottom=0)
            axis.legend(frameon=False, fontsize=8)
        files.append(_saved(figure, folder / plot.file))
    return files


def draw_old_job(record: dict[str, Any], folder: Path) -> Path:
    """Draw what each epoch of an old job took, and what its log then weighed. Returns the file."""
    pyplot = _plotter()
    epochs = record["epochs"]
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    figure.suptitle("One job, epoch after epoch (500 rows each)", fontsize=11)
    across = range(1, len(epochs) + 1)
    axes[0].plot(
        across, [one["wall_s"] for one in epochs], ".", markersize=1.5, alpha=0.5, label="old job", rasterized=True
    )
    twin_s = record["twin_s"]
    beside = range(len(epochs) - len(twin_s) + 1, len(epochs) + 1)
    axes[0].plot(beside, twin_s, ".", markersize=1.5, alpha=0.5, label="young twin", rasterized=True)
    axes[0].legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("wall s per epoch")
    axes[1].plot(across, [one["log_bytes"] / 1e3 for one in epochs], ".", markersize=1.5, label="log", rasterized=True)
    axes[1].plot(
        across, [one["metadata_bytes"] / 1e3 for one in epochs], ".", markersize=1.5, label="metadata", rasterized=True
    )
    axes[1].set_ylabel("kB written per epoch")
    axes[1].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.set_xlabel("epoch")
        axis.set_ylim(bottom=0)
    return _saved(figure, folder / "old-job.svg")


def draw_months(months: dict[str, dict[str, Any]], folder: Path) -> Path:
    """Draw what an epoch takes and asks, and what its tables' metadata and its log weigh. Returns the file."""
    pyplot = _plotter()
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    figure.suptitle("A small job, epoch after epoch", fontsize=11)
    drawn = (
        ("CPU s per epoch", lambda point: point["cpu_s"]),
        ("requests per epoch", lambda point: point["requests"]),
        ("kB of tables' metadata and database", lambda p: (p["table_log_bytes"] + p["database_bytes"]) / 1e3),
    )
    for axis, (says, value) in zip(axes, drawn, strict=True):
        for name, record in months.items():
            points = record["points"]
            axis.plot([point["epoch"] for point in points], [value(point) for point in points], label=name)
        axis.set_xlabel("epoch")
        axis.set_ylabel(says)
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=8)
    return _saved(figure, folder / "months.svg")


def draw_commits(parts: dict[str, dict[str, Any]], folder: Path) -> Path | None:
    """Draw what each of many commits took and wrote into its format's log. Returns the file; None without any."""
    measured = {
        name.removeprefix("commits/"): next(iter(record["systems"].values()))["epochs"]
        for name, record in parts.items()
        if name.startswith("commits/") and "failed" not in record
    }
    if not measured:
        return None
    pyplot = _plotter()
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    figure.suptitle("One table, commit after commit (20,000 rows each)", fontsize=11)
    for name, epochs in measured.items():
        warm = epochs[len(epochs) // 20 :]  # the first ones warm Spark
        across = [epoch["number"] + 1 for epoch in warm]
        drawn = {"marker": ".", "linestyle": "", "markersize": 3, "alpha": 0.6, "label": name.capitalize()}
        axes[0].plot(across, [epoch["wall_s"] for epoch in warm], **drawn)
        axes[1].plot(across, [epoch["figures"]["log_bytes"] / 1e3 for epoch in warm], **drawn)
    for axis, unit in zip(axes, ("wall s per epoch", "kB of log written per epoch"), strict=True):
        axis.set_xlabel("commits")
        axis.set_ylabel(unit)
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=8)
    return _saved(figure, folder / "commits.svg")


def _plotter() -> Any:
    """Return Matplotlib's `pyplot`, which draws SVG, the same for the same figures."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    style = {"svg.hashsalt": "milepost", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.3}
    matplotlib.rcParams.update(style)
    return importlib.import_module("matplotlib.pyplot")


def _saved(figure: Any, file: Path) -> Path:
    """Write a figure, without the date, and forget it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    importlib.import_module("matplotlib.pyplot").close(figure)
    return file


def _plain(value: float, _: object) -> str:
    """A tick's number as people write it: 0.5, 20, 10 k, 5 M."""
    for unit, letter in ((1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _state_bytes(epoch: dict[str, Any]) -> float:
    return float(epoch["figures"].get("state_bytes", 0))


if __name__ == "__main__":
    results, target = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    if "old_job" in results:
        draw_old_job(results["old_job"], target)
    elif "months" in results:
        draw_months(results["months"], target)
    else:
        draw(results["parts"], target)
        draw_commits(results["parts"], target)
