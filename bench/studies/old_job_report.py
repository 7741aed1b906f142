"""OLD_JOB.md: what a job's age costs, and each target's verdict; of fewer epochs than a target needs it says so."""

from __future__ import annotations

from typing import Any

from bench.studies.old_job import EARLY, LATE, RETAINED, ROWS, summary_of

_TARGETS = (
    ("grown", f"median of the last {LATE} epochs over epochs {EARLY[0]} to {EARLY[1]} of a young twin", 1.1, " ×"),
    ("grown_since_early", f"the same over its own epochs {EARLY[0]} to {EARLY[1]}, at the run's beginning", 1.1, " ×"),
    ("written_bytes_per_epoch", "log and metadata written per epoch", 60_000, " B"),
    ("kept_bytes_per_epoch", "log and live metadata kept per epoch", 2_000, " B"),
    ("largest_entry", f"largest entry of the log, with {RETAINED} retained checkpoints", 16_000, " B"),
    ("slowest_read_s", "slowest of list, history, status, show of the first", 1.0, " s"),
)


def render_old_job(document: dict[str, Any]) -> str:
    """Return the report of one run."""
    record = document["old_job"]
    found = summary_of(record)
    lines = [
        "# A job grows old",
        "",
        f"{found['epochs']:,} epochs of {ROWS} rows in one process, two operators, two sinks; at commit",
        f"{document['commit']}, in {record['took_s'] / 60:.0f} minutes. A machine is not equally fast for so long: the",
        "twin is a new job in a process of its own, and its epochs took turns with the old job's last ones. The figure",
        "against the job's own beginning has in it whatever else the machine did in between.",
        "",
        "| | figure | target | |",
        "|---|---:|---:|---|",
    ]
    for name, says, bound, unit in _TARGETS:
        figure = found[name]
        verdict = "not measured: too few epochs" if figure is None else "met" if figure <= bound else "**missed**"
        shown = "–" if figure is None else _plain(figure)
        lines.append(f"| {says} | {shown}{unit if figure is not None else ''} | {_plain(bound)}{unit} | {verdict} |")
    lines += ["", "![epoch time and log](plots/old-job.svg)", "", "| stored at the end | bytes |", "|---|---:|"]
    lines += [f"| {kind} | {size:,} |" for kind, size in record["stored"].items()]
    lines += ["", "Garbage waits for its grace period, which is longer than the run.", ""]
    young, old = record["acts_s"]["young"], record["acts_s"]["old"]
    lines += ["| seconds | young job | old job |", "|---|---:|---:|"]
    lines += [f"| {name} | {young[name]:.2f} | {old[name]:.2f} |" for name in old]
    lines += [f"| {name} | | {spent:.2f} |" for name, spent in record["reads_s"].items()]
    return "\n".join(lines) + "\n"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
