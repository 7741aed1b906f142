"""What the measured round trips say: a page, and a picture of which request waited for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from bench.studies.round_trips import DRAWN_MS, TASKS

TARGET = 12
"""Round trips in line of a warm epoch with two sinks."""
TARGET_S = 0.4
"""What they add to it at `DRAWN_MS` each."""
STEPS = ("trigger", "begin", "session", "data plane", "gate", "prepare", "write", "complete", "notify", "subsume")
_ROW, _LEFT, _WIDTH, _TEXT = 11, 90, 560, 420


def render_round_trips(document: Mapping[str, Any]) -> str:
    """Return the report of one run, next to that of an earlier commit if there is one."""
    now, before = document["round_trips"], document.get("before")
    runs = [("now", document["commit"], now)] + (
        [("before", before["commit"], before["round_trips"])] if before else []
    )
    lines = [
        "# Round trips of an epoch",
        "",
        f"A warm epoch of {now['rows']:,} rows in one process: two operators, two sinks, a quality gate; one",
        "checkpoint is subsumed. An S3 server of loopback answers each request after 0, 30 or 100 ms. *In line* are",
        "the requests of which each waited for the one before, tasks of Spark included; a wait for leave to send a",
        "body (`100 Continue`) stands in line too. *Driver* is the longest chain of what waits for what in the driver,",
        "without its tasks: it does not depend on the machine. Medians. Other processes kept",
        f"{now['other_busy_cores']:.2f} cores busy.",
        "",
        "| | ms per request | wall s | requests | in line | driver | PUT, LIST | GET, HEAD | DELETE |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, commit, record in runs:
        for delay_ms, measured in record["delays"].items():
            lines.append(f"| {name} ({commit[:8]}) | {delay_ms} | {_figures(measured['epochs'])} |")
    lines += ["", *_verdicts(now), ""]
    lines += _by_step(runs) + _tasks(runs)
    lines += [
        "## Who waits for what",
        "",
        f"One epoch at {DRAWN_MS} ms; dark is what stood in line.",
        "",
        "![Requests of an epoch by time](plots/round-trips.svg)",
    ]
    return "\n".join(lines) + "\n"


def _figures(epochs: Sequence[Mapping[str, Any]]) -> str:
    classes = [_median(epochs, lambda one, kind=kind: one["classes"].get(kind, 0)) for kind in ("put", "get", "delete")]
    wall = _median(epochs, lambda one: one["wall_s"])
    counts = [_median(epochs, lambda one, figure=figure: one[figure]) for figure in ("requests", "in_line")]
    driver = _median(epochs, lambda one: sum(one["driver"].values()))
    return " | ".join([f"{wall:.2f}", *(f"{count:.0f}" for count in (*counts, driver, *classes))])


def _verdicts(now: dict[str, Any]) -> list[str]:
    """Return what the targets say: in line where the machine's own time blurs it least, and what the waits add."""
    at = {delay_ms: measured["epochs"] for delay_ms, measured in now["delays"].items()}
    in_line = _median(at[max(at, key=int)], lambda one: one["in_line"])
    driver = _median(at[str(DRAWN_MS)], lambda one: sum(one["driver"].values()))
    added_s = _median(at[str(DRAWN_MS)], lambda one: one["wall_s"]) - _median(at["0"], lambda one: one["wall_s"])
    lines, waits = _met(in_line <= TARGET), _met(added_s < TARGET_S)
    return [
        f"* Target: at most {TARGET} in line: {lines}: {in_line:.0f}, of which the driver alone has {driver:.0f}.",
        f"* Target: {DRAWN_MS} ms per request add less than {TARGET_S:g} s: {waits}: {added_s:.2f} s.",
    ]


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


def _by_step(runs: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    """In line by step, at the delay that is drawn."""
    lines = ["## By step", "", f"At {DRAWN_MS} ms, in line:", ""]
    lines += ["| step | " + " | ".join(name for name, _, _ in runs) + " |", "|---|" + "---:|" * len(runs)]
    for step in STEPS:
        counts = []
        for _, _, record in runs:
            epochs = record["delays"][str(DRAWN_MS)]["epochs"]
            counts.append(_median(epochs, lambda one: _of_step(one["in_line_by_step"], step)))  # noqa: B023 - called here
        lines.append(f"| {step} | " + " | ".join(f"{count:.0f}" for count in counts) + " |")
    return [*lines, ""]


def _of_step(by_step: Mapping[str, int], step: str) -> int:
    """Of an earlier commit each sink's step had its own name."""
    return sum(count for name, count in by_step.items() if name == step or name.startswith(f"{step} "))


def _tasks(runs: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    """What each task of a scheduled epoch asks, in a process of its own."""
    lines = [
        "## Each task in a process of its own",
        "",
        f"As a scheduler runs an epoch, at {DRAWN_MS} ms: requests, and in line.",
        "",
    ]
    lines += ["| task | " + " | ".join(name for name, _, _ in runs) + " |", "|---|" + "---:|" * len(runs)]
    for task in TASKS:
        cells = []
        for _, _, record in runs:
            found = record["delays"][str(DRAWN_MS)]["tasks"][task]
            cells.append(f"{found['requests']}, {found['in_line']}")
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def draw_round_trips(document: Mapping[str, Any]) -> str:
    """Return the picture of the last measured epoch at the delay that is drawn, as SVG."""
    drawn = document["round_trips"]["delays"][str(DRAWN_MS)]["epochs"][-1]["drawn"]
    last_ms = max(one["to_ms"] for one in drawn)
    height = _ROW * (len(drawn) + 2)
    size = f"0 0 {_LEFT + _WIDTH + _TEXT} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="9">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    step = None
    for row, one in enumerate(drawn):
        top = _ROW * (row + 1)
        left = _LEFT + one["from_ms"] / last_ms * _WIDTH
        width = max(1.0, (one["to_ms"] - one["from_ms"]) / last_ms * _WIDTH)
        if one["step"] != step:
            step = one["step"]
            parts.append(f'<line x1="0" x2="{_LEFT + _WIDTH + _TEXT}" y1="{top}" y2="{top}" stroke="#ddd"/>')
            parts.append(f'<text x="4" y="{top + 9}" fill="#333">{escape(step)}</text>')
        fill = "#1f4e79" if one["in_line"] else "#a9c4e0"
        parts.append(f'<rect x="{left:.1f}" y="{top + 1}" width="{width:.1f}" height="{_ROW - 2}" fill="{fill}"/>')
        parts.append(f'<text x="{_LEFT + _WIDTH + 6}" y="{top + 9}" fill="#333">{escape(one["what"])}</text>')
    end = f'<text x="{_LEFT}" y="{height - 2}" fill="#666">0 ms to {last_ms} ms</text></svg>'
    return "\n".join([*parts, end]) + "\n"


def _median(epochs: Sequence[Mapping[str, Any]], figure: Any) -> float:
    return median(figure(one) for one in epochs)
