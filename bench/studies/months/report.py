"""MONTHS.md: what ten thousand epochs leave behind, for each kind of table, and whether anything grows with them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from bench.studies.months.small_job import CALLS_COUNTED, COLLECTED, LANDED, LOOKED, RETAINED, TIMEOUT, WEEK_S
from bench.studies.months.small_objects import DELAY_MS

_FLAT = 1.1
"""What does not grow may differ so much between the points at the beginning and those at the end."""
_COMPARED = 9
"""How many points are compared, after the first one and at the end; fewer of a short run."""
_TRANSITION_BYTES = 250


def summary_of(record: Mapping[str, Any]) -> dict[str, float]:
    """What the targets ask of one format's record.

    Returns: ratios `…_grown` of the median of the last points over that of those after the first; and the bytes of
        the log per transition, taken between the second point and the last: what is retained whole is on both sides.
    """
    points = record["points"]
    compared = min(_COMPARED, (len(points) - 1) // 2)
    second, last = points[1], points[-1]
    entries = last["log_entries"] - second["log_entries"]
    ratios = {"log_bytes_per_transition": (last["log_bytes"] - second["log_bytes"]) / entries}
    for name in _RATIOS:
        early, late = (median(point[name] for point in some) for some in (points[1 : 1 + compared], points[-compared:]))
        if early:
            ratios[f"{name}_grown"] = late / early
    return ratios


def render_months(document: Mapping[str, Any]) -> str:
    """Return the report of one run."""
    months = document["months"]
    lines = [
        "# Months in minutes",
        "",
        "Thousands of epochs of 500 rows for each kind of table, the tasks of each in one process without Spark;",
        f"{RETAINED} checkpoints are retained, the newest {LANDED} landed files stay, and garbage is collected",
        f"after every {COLLECTED} epochs. An epoch stands for one of an hourly job: the week of which a table keeps",
        f"its log is {WEEK_S} s, and garbage waits for twice the timeout of {TIMEOUT}. A point is of {LOOKED} epochs.",
        f"Of one epoch in {CALLS_COUNTED} the calls of functions are counted, Python's and C's, in place of its time:",
        "they tell what an epoch does, whatever the machine's speed is just then.",
        f"The first point is warming up; the last {_COMPARED} are compared with the {_COMPARED} after it, by their",
        f"medians. At commit {_commits(document['commits'])}.",
        "",
        f"| the last {_COMPARED * LOOKED} epochs, over those after the first {LOOKED} | "
        + " | ".join(months)
        + " | target |",
        "|---|" + "---:|" * (len(months) + 1),
    ]
    found = {name: summary_of(record) for name, record in months.items()}
    for figure, says in _RATIOS.items():
        cells = [_ratio(one, figure) for one in found.values()]
        lines.append(f"| {says} | {' | '.join(cells)} | {_FLAT} × |")
    bytes_ = [one["log_bytes_per_transition"] for one in found.values()]
    cells = [f"{one:.0f} B{_verdict(one, _TRANSITION_BYTES)}" for one in bytes_]
    lines.append(f"| log, per transition | {' | '.join(cells)} | {_TRANSITION_BYTES} B |")
    lines += ["", "![epoch after epoch](plots/months.svg)", "", "| at the end | " + " | ".join(months) + " |"]
    lines.append("|---|" + "---:|" * len(months))
    for name, says in _LEFT.items():
        lines.append(
            f"| {says} | " + " | ".join(f"{record['points'][-1][name]:,}" for record in months.values()) + " |"
        )
    collected = [
        max(one["wall_s"] for one in record["collected"]) if record["collected"] else 0 for record in months.values()
    ]
    lines.append("| slowest collection of garbage, s | " + " | ".join(f"{one:.1f}" for one in collected) + " |")
    lines.append("| minutes of the run | " + " | ".join(f"{one['took_s'] / 60:.0f}" for one in months.values()) + " |")
    lines += ["", *_GROWS, *_neighbours(document.get("neighbours")), *_small_objects(document.get("small_objects"))]
    return "\n".join(lines) + "\n"


def _ratio(found: Mapping[str, float], figure: str) -> str:
    grown = found.get(f"{figure}_grown")
    if grown is None:
        return "–"
    return f"{grown:.2f} ×{_verdict(grown, _FLAT)}"


def _neighbours(record: Mapping[str, Any] | None) -> list[str]:
    if record is None:
        return []
    lines = [
        "",
        f"## {record['jobs']} jobs in one storage",
        "",
        f"What one Parquet job asks of its stores, and the CPU of it, alone and beside {record['jobs'] - 1} others;",
        "of an epoch the mean. `jobs` lists all of them, and is the only one that may grow.",
        "",
        "| | alone | beside the others |",
        "|---|---:|---:|",
    ]
    for act, alone in record["alone"].items():
        cells = [
            f"{one['requests']:.1f} requests, {one['cpu_s'] * 1e3:.0f} ms" for one in (alone, record["beside"][act])
        ]
        lines.append(f"| {act} | {' | '.join(cells)} |")
    return lines


def _small_objects(record: Mapping[str, Any] | None) -> list[str]:
    if record is None:
        return []
    lines = [
        "",
        f"## {record['objects']:,} objects of a kilobyte",
        "",
        f"CSV in a bucket whose answers take {DELAY_MS} ms, one run of `local[2]` after another, each a process of its",
        "own. *In line* are the requests of which each waited for the one before, without those for the objects",
        f"themselves. Other processes kept {record['other_busy_cores']:.2f} cores busy.",
        "",
        "| takes | wall s | CPU s | listing s | lists | gets of objects | other requests | in line | driver MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in record["runs"]:
        kinds = dict(run["requests"])
        lists, gets = kinds.pop("list landing", 0), kinds.pop("get landing", 0)
        figures = (
            f"{run['wall_s']:.1f}",
            f"{run['cpu_s']:.1f}",
            f"{run['listing_s']:.1f}",
            *(f"{count:,}" for count in (lists, gets, sum(kinds.values()), run["in_line"])),
            f"{run['driver_mb']:.0f}",
        )
        lines.append(f"| {run['takes']} | {' | '.join(figures)} |")
    return lines


_GROWS = (
    "## What grows",
    "",
    "* **The log**: of each transition a tombstone stays, for its key may never be free again: a writer that was",
    "  frozen would succeed. Its newest entries are listed, and the newest is read, however many there are.",
    "* **A table of our own in Parquet**: of each commit a head of 240 to 400 B stays, for the same reason.",
    "* **Input records**: one of 330 B per epoch, which a backfill reads.",
    "* **Delta**, for a week or as far back as checkpoints reach: entries of the log, and in each of its checkpoints",
    "  (one in ten commits) about 300 B of every commit whose files were removed since. An epoch per hour has 50 kB in",
    "  a checkpoint; one per minute 3 MB, and 3 GB of them in a week. Delta's own defaults keep removed files in mind",
    "  for a week too, and the log for thirty days.",
    "* **Iceberg**, for as long, and at most 1,250 snapshots: each has 730 B in the metadata, which each commit writes",
    "  again: 120 kB with an epoch per hour, 0.9 MB with one per minute.",
    "* **Postgres**: nothing; a table has one row beside it, and autovacuum takes what updates leave.",
    "",
    "What a week of minutes has is computed from bytes per commit, not run.",
)
_RATIOS = {
    "calls": "calls of an epoch, median",
    "cpu_s": "CPU of an epoch, median",
    "mean_cpu_s": "the same, mean",
    "wall_s": "time of an epoch, median",
    "requests": "requests of an epoch, median",
    "mean_requests": "the same, mean",
    "table_log_bytes": "the tables' metadata",
    "database_bytes": "the database",
    "cache_bytes": "the node's cache",
}
_LEFT = {
    "epoch": "epochs",
    "requests": "requests of an epoch, median",
    "head_found_by": "requests by which a new process finds the head",
    "log_entries": "entries of the log",
    "log_bytes": "bytes of the log",
    "largest_entry": "largest entry of the log",
    "table_log_files": "files of the tables' metadata",
    "table_log_bytes": "bytes of the tables' metadata",
    "table_files": "files of the tables",
    "job_objects": "objects of the job",
    "cache_bytes": "bytes of the node's cache",
    "database_bytes": "bytes of the database",
}


def _commits(commits: Mapping[str, str]) -> str:
    """Return the commits that parts were measured at, those of one commit together."""
    parts = dict[str, list[str]]()
    for part, commit in commits.items():
        parts.setdefault(commit, []).append(part.replace("_", " "))
    return "; ".join(f"{commit} ({', '.join(names)})" for commit, names in parts.items())


def _verdict(figure: float, bound: float) -> str:
    return "" if figure <= bound else " **missed**"
