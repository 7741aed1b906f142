"""`TABLES.md` from the raw results of open tables: a pure function of them, so that it can be built again."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from bench.reports.reasons import TABLE_REASONS
from bench.reports.report import failures, judged, phase_section, quartiles, smoke, stamps, table_lines, versions
from bench.reports.statistics import Spread, ratio
from bench.reports.targets import Parts, Record, counted, walls
from bench.studies.tables import TABLE_TARGETS, share, table_parts
from bench.systems.registry import entry_of

_FULL = "make bench-tables MODE=full"
_SIDES = {
    "delta": "Delta: ours beside Spark, delta-rs and DuckDB",
    "iceberg": "Iceberg: ours beside Spark",
    "aggregating": "With the aggregation in their statement",
    "ours": "What an upsert costs over our own table",
    "append": "Rows that are only appended",
}
_NOTES = {
    "delta": (
        "Theirs are given the epoch's rows aggregated already, one per key, in one file; ours aggregates them, keeps "
        "state, and completes a checkpoint of it. DuckDB's table is a file of its own that no other engine reads, so "
        "its last row publishes the whole of it as Parquet."
    ),
    "iceberg": "As above. Both catalogs are databases of SQLite.",
    "aggregating": "The statement groups the bids itself. It has no state but the table, and completes no checkpoint.",
    "ours": (
        "Our own Parquet table appends the changed rows, and Milepost merges them by key when it reads; on Delta as a "
        "changelog they are appended for every engine. An upsert writes each bucket again in which a key changed."
    ),
    "append": "",
}


def render_tables(document: dict[str, Any]) -> str:
    """The whole text. Args: document: raw results as `command.py` stores them."""
    parts: Parts = document["parts"]
    measured = {name: record for name, record in parts.items() if "failed" not in record}
    sections = [
        _head(document, measured),
        failures(document),
        _targets(document["mode"], measured),
        *(_group(group, measured) for group in _SIDES),
        _commits(measured),
        _phases(measured),
        stamps(parts),
        versions(document, measured),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(document: dict[str, Any], measured: Parts) -> str:
    machine, mode = document["machine"], document["mode"]
    commits = " and ".join(dict.fromkeys(one["commit"] or "unknown" for one in document["parts"].values()))
    made = f"Written by `make bench-tables MODE={mode}`, not by hand; how: [README.md](README.md)"
    raw = "raw figures: [results-tables.json](results-tables.json)"
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}"
    lines = [
        "# Open tables, side by side",
        "",
        f"{made}; {raw}.",
        "",
        f"Measured on {where} at {commits or 'no commit'}.",
    ]
    return "\n".join([*lines, *smoke(measured)])


def _targets(mode: str, parts: Parts) -> str:
    rows = judged(TABLE_TARGETS, parts, TABLE_REASONS, {part.name for part in table_parts(mode)}, _FULL)
    text = (
        "Set before the first measurement. Against Spark: median over rounds of (its wall time / ours), of the better "
        "of its two ways, which gets rows that are grouped already; of one that groups as ours does (these two rows "
        "came later); in rows “against” something, (ours / that). Both sides were measured in one part, in turns. "
        "The reasons of what is missed are written by hand."
    )
    return "\n".join(["## Targets", "", text, "", *rows])


def _group(group: str, parts: Parts) -> str:
    shown = [name for name in parts if name.startswith(f"{group}/")]
    if not shown:
        return ""
    tables = ["\n".join(_side_by_side(name, parts[name])) for name in shown]
    return "\n\n".join(text for text in [f"## {_SIDES[group]}", _NOTES[group], *tables] if text)


def _side_by_side(name: str, record: Record) -> list[str]:
    workload, first = record["workload"], next(iter(record["systems"]))
    rows = []
    for system in record["systems"]:
        epochs = counted(record, system)
        wall, cpu = Spread.of(walls(record, system)), Spread.of([epoch["cpu_s"] for epoch in epochs])
        times = ratio(walls(record, system), walls(record, first))
        rows.append(
            (
                _label(system),
                f"{wall.median:.2f}",
                quartiles(wall),
                f"{times.median:.2f}",
                f"{cpu.median:.2f}",
                _megabytes(epochs, "output_bytes"),
                _megabytes(epochs[-1:], "kept_bytes"),
                _seconds(epochs, "read_s"),
            )
        )
    epochs = record["systems"][first]["epochs"]
    changed = Spread.of([record["changed_keys"][epoch["number"]] for epoch in counted(record, first)]).median
    says = (
        f"{workload['rows']:,} rows per epoch, seed {workload['seed']}, of which {changed:,.0f} keys; "
        f"{len(counted(record, first))} rounds after {len(epochs) - len(counted(record, first))}; all published the "
        f"same {record['rows']:,} rows."
    )
    head = ("system", "wall s", "25–75 %", "× first row", "CPU s", "written MB", "kept MB", "Spark reads s")
    return [f"### {name.split('/')[1]}: {workload['says']}", "", says, "", *table_lines(head, rows)]


def _label(system: str) -> str:
    if system == "milepost":
        return "Milepost, own Parquet table"
    return f"{entry_of(system).says}{', which aggregates' if 'aggregates' in system else ''}"


def _megabytes(epochs: Sequence[dict[str, Any]], figure: str) -> str:
    found = [epoch["figures"][figure] for epoch in epochs if figure in epoch["figures"]]
    return f"{Spread.of(found).median / 1e6:.1f}" if found else "–"


def _seconds(epochs: Sequence[dict[str, Any]], figure: str) -> str:
    found = [epoch["figures"][figure] for epoch in epochs if figure in epoch["figures"]]
    return f"{Spread.of(found).median:.2f}" if found else "–"


def _commits(parts: Parts) -> str:
    """What many commits in a row cost, early and late."""
    rows = []
    for name, record in parts.items():
        if not name.startswith("commits/"):
            continue
        (system,) = record["systems"]
        every = record["systems"][system]["epochs"]
        for part in ("early", "late"):
            epochs = share(every, part)
            rows.append(
                (
                    f"{entry_of(system).says}, {epochs[0]['number'] + 1} to {epochs[-1]['number'] + 1}",
                    f"{mean(epoch['wall_s'] for epoch in epochs):.3f}",
                    *(
                        f"{mean(epoch['figures'][f'log_{what}'] for epoch in epochs):,.1f}"
                        for what in ("bytes", "objects")
                    ),
                    f"{epochs[-1]['figures']['log_kept']:,}",
                    f"{epochs[-1]['figures']['kept_bytes'] / 1e6:.1f}",
                )
            )
    if not rows:
        return ""
    text = (
        "20,000 rows per epoch and 10,000 keys, so that what is left is what a commit costs; means, because some "
        "commits do work for those before. What is kept waits for the grace period, which is longer than the run."
    )
    head = ("commits", "wall s", "log bytes", "log objects", "objects kept", "kept MB")
    image = "![time and log of each commit](plots/commits.svg)"
    return "\n".join(["## Commit after commit", "", text, "", *table_lines(head, rows), "", image])


def _phases(parts: Parts) -> str:
    """Medians of the phases of our epochs with 1 M keys, by kind of table."""
    record = parts.get("ours/uniform-1m")
    if record is None:
        return ""
    text = "Milliseconds of a warm epoch by phase, 1 M keys, each as often; medians, as `milepost show` tells them."
    return phase_section(text, {_label(system): counted(record, system) for system in record["systems"]})
