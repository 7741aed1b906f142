"""The report of a mode from its raw results: a pure function of them, so that it can be built again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bench.parts import MOST_KEYS, parts_of
from bench.reports.plots import PLOTS, series_of
from bench.reports.reasons import REASONS
from bench.reports.statistics import Spread, ratio
from bench.reports.targets import TARGETS, Parts, Record, Target, Verdict, counted, state_bytes_per_key, walls
from bench.systems.registry import entry_of
from bench.workloads.workloads import Workload

LOADED_CORES = 0.1
"""Above so many cores kept busy by other processes, a part is marked: its wall times mean little."""


_TITLES = {"language": "The language beside its peers", "sql": "Joins over updates and SQL beside PyFlink"}
"""Mode -> the title of its report. Only these modes have a report of their own."""


def render(document: dict[str, Any]) -> str:
    """The whole text. Args: document: raw results as `command.py` stores them."""
    parts: Parts = document["parts"]
    measured = {name: record for name, record in parts.items() if "failed" not in record}
    sections = [
        _head(document, measured),
        failures(document),
        _targets(document["mode"], measured),
        _workloads(measured),
        _phases(measured),
        _growth(measured),
        _others(measured),
        stamps(parts),
        versions(document, measured),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def report_name(mode: str) -> str:
    """Return the name of a mode's report."""
    return f"{mode.upper()}.md" if mode in _TITLES else "RESULTS.md"


def _head(document: dict[str, Any], measured: Parts) -> str:
    machine = document["machine"]
    mode = document["mode"]
    raw = f"[results-{mode}.json](results-{mode}.json)"
    made = f"Written by `make bench MODE={mode}`, not by hand; how: [README.md](README.md); raw figures: {raw}."
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}"
    commits = list(dict.fromkeys(one["commit"] or "unknown" for one in document["parts"].values()))
    several = "; when each part was taken and of which commit is said [below](#parts)" if len(commits) > 1 else ""
    at = f" at commit {commits[0]}" if len(commits) == 1 else f" at {len(commits)} commits{several}" if commits else ""
    title = _TITLES.get(mode, "Results of the benchmark")
    lines = [f"# {title}", "", made, "", f"Measured on {where}{at}."]
    return "\n".join([*lines, *smoke(measured)])


def smoke(measured: Parts) -> list[str]:
    """Return a note on other work during a run; nothing for a calm one."""
    loaded = {name: one["other_busy_cores"] for name, one in measured.items() if one["other_busy_cores"] > LOADED_CORES}
    if not loaded:
        return []
    text = (
        f"**A smoke run, not a measurement**: in {len(loaded)} of {len(measured)} parts other processes kept up to "
        f"{max(loaded.values()):.1f} cores busy ({', '.join(loaded)}). "
        "Wall times, and ratios of them, mean little there."
    )
    return ["", text]


def failures(document: dict[str, Any]) -> str:
    """The section of parts that failed, and of environments that could not be built; empty without any."""
    lines = [
        f"* **{name}** was measured without a result: {one['failed']}"
        for name, one in document["parts"].items()
        if "failed" in one
    ]
    lines += [f"* **{name}** could not be built here: {why}" for name, why in document["unavailable"].items()]
    return "\n".join(["## What is missing", "", *lines]) if lines else ""


def _targets(mode: str, parts: Parts) -> str:
    others = tuple(f"{name}/" for name in _TITLES)
    own = [
        one
        for one in TARGETS
        if (one.part.startswith(f"{mode}/") if mode in _TITLES else not one.part.startswith(others))
    ]
    rows = judged(own, parts, REASONS, {part.name for part in parts_of(mode)}, "make bench MODE=full")
    text = (
        "Ratios are medians over rounds of (their wall time / our wall time), against the better of the other system's "
        "configurations; in rows “against” something, of (our wall time / that). Both sides of a ratio were measured "
        "in one part, in turns. The reasons of what is missed are written by hand."
    )
    return "\n".join(["## Targets", "", text, "", *rows])


def judged(
    targets: Iterable[Target], parts: Parts, reasons: Mapping[str, str], measurable: Collection[str], full: str
) -> list[str]:
    """A table of targets and what was found of them.

    Args:
        reasons: why one is missed, by what it says. measurable: parts that the mode has. full: what runs them all.
    """
    rows = []
    for target in targets:
        found, verdict = target.judge(parts)
        sign = "≤" if target.at_most else "≥"
        bound = "any" if target.bound == float("inf") else f"{sign} {target.bound:g}{target.unit}"
        figure, spread = ("–", "–") if found is None else (f"{found.median:.2f}{target.unit}", quartiles(found))
        says = verdict.value
        if verdict is Verdict.MISSED:
            says += f": {reasons.get(target.says, 'the reason is not known yet')}"
        if verdict is Verdict.UNKNOWN and target.part not in measurable:
            says = f"only by `{full}`"
        rows.append((target.says, bound, figure, spread, says))
    return table_lines(("what", "target", "median", "25–75 %", ""), rows, texts=(0, 4))


def _workloads(parts: Parts) -> str:
    names = [
        name for name in parts if name.startswith(("workload/", "flink/", "process/", "aged/", "language/", "sql/"))
    ]
    return "\n\n".join(["## Side by side", *(_side_by_side(name, parts[name]) for name in names)]) if names else ""


def _side_by_side(name: str, record: dict[str, Any]) -> str:
    ours = next(system for system in record["systems"] if system.startswith("milepost"))
    rows = []
    for system in record["systems"]:
        epochs = counted(record, system)
        wall, cpu = Spread.of(walls(record, system)), Spread.of([epoch["cpu_s"] for epoch in epochs])
        times = ratio(walls(record, system), walls(record, ours))
        state = state_bytes_per_key(record, system)
        written = [epoch["figures"]["output_bytes"] for epoch in epochs if "output_bytes" in epoch["figures"]]
        rows.append(
            (
                entry_of(system).says,
                f"{wall.median:.2f}",
                quartiles(wall),
                f"{cpu.median:.2f}",
                quartiles(cpu),
                f"{times.median:.2f}",
                "–" if state is None else f"{state.median:.1f}",
                f"{Spread.of(written).median / 1e6:.1f}" if written else "–",
                memory(system, epochs),
            )
        )
    workload = record["workload"]
    says = (
        f"{Workload.from_json(workload).shape.says}; {len(counted(record, ours))} rounds; all published the same "
        f"{record['rows']:,} rows."
    )
    head = ("system", "wall s", "25–75 %", "CPU s", "25–75 %", "× ours", "state B/key", "published MB", "memory MB")
    return "\n".join(
        [f"### {name.removeprefix('workload/')}: {workload['says']}", "", says, "", *table_lines(head, rows)]
    )


def _phases(parts: Parts) -> str:
    """Medians of the phases of our own warm epochs, workload by workload."""
    shown = {
        name.split("/", 1)[1]: counted(record, "milepost")
        for name, record in parts.items()
        if name.startswith("workload/") and "milepost" in record["systems"]
    }
    text = "Milliseconds of a warm epoch by phase, medians, as `milepost show` tells them."
    return phase_section(text, shown) if shown else ""


def phase_section(text: str, shown: Mapping[str, Sequence[Record]]) -> str:
    """Where the time of epochs goes. Args: shown: measured epochs, by the head of their column."""
    rows = []
    for phase in next(iter(shown.values()))[0]["figures"]["phases"]:
        cells = []
        for epochs in shown.values():
            values = [epoch["figures"]["phases"][phase] for epoch in epochs]
            measured = [value for value in values if value is not None]
            cells.append(f"{Spread.of(measured).median:.0f}" if measured else "–")
        rows.append((phase.removesuffix("_ms"), *cells))
    return "\n".join(["## Where our time goes", "", text, "", *table_lines(("phase", *shown), rows)])


def _growth(parts: Parts) -> str:
    shown = [plot for plot in PLOTS if series_of(plot, parts)]
    images = [f"![{plot.title}](plots/{plot.file})" for plot in shown]
    return "\n\n".join(["## How cost grows", *images]) if images else ""


def _others(parts: Parts) -> str:
    lines = []
    for name, record in parts.items():
        for probe in [record.get("probes", {}).get("empty")]:
            if probe is not None:
                asked = ", ".join(f"{count} {operation}" for operation, count in sorted(probe["requests"].items()))
                lines.append(
                    f"* Empty epoch, warm ({name}): {probe['wall_s'] * 1000:.0f} ms, {probe['spark_jobs']} Spark jobs, "
                    f"{sum(probe['requests'].values())} store requests ({asked})."
                )
    for one in parts.get("restore/keyed-5m", {}).get("rounds", []):
        decode = one["decode"]
        lines.append(
            f"* Restore without the node's cache: an epoch of {one['cold_s']:.2f} s instead of {one['warm_s']:.2f} s "
            f"(`show` names {one['cold']['figures']['phases']['restore_ms']} ms of restoring); "
            f"pyarrow reads and decodes the same {decode['files']} files ({decode['bytes'] / 1e6:.1f} MB, "
            f"{decode['rows']:,} rows) in {decode['wall_s']:.2f} s."
        )
    for part in ("workload/keyed-5m", "memory/512 MB"):
        for system in parts.get(part, {}).get("systems", {}):
            if system.startswith("milepost"):
                largest = max(epoch["largest_task_bytes"] for epoch in counted(parts[part], system)) / 1e6
                lines.append(f"* Largest Python task at 5 M keys ({part}, {system}): {largest:.0f} MB.")
    if f"keys/{MOST_KEYS}" in parts:
        lines.append(_by_slices(parts[f"keys/{MOST_KEYS}"]))
    return "\n".join(["## Other figures", "", *lines]) if lines else ""


def _by_slices(record: dict[str, Any]) -> str:
    """What so many keys take of one machine."""
    first, *later = epochs = record["systems"]["milepost"]["epochs"]
    took = " and ".join(f"{epoch['wall_s']:.1f} s" for epoch in later)
    task_mb = max(epoch["largest_task_bytes"] for epoch in epochs) / 1e6
    return (
        f"* {record['workload']['keys'] / 1e6:g} M keys on this machine: the first epoch, which has a row of each, "
        f"took {first['wall_s']:.0f} s, each subtask in {first['figures']['slices']} slices; those behind it of "
        f"{record['workload']['rows'] / 1e6:g} M rows {took}, in {later[-1]['figures']['slices']}. The state has "
        f"{later[-1]['figures']['runs']} runs; all processes held {memory('milepost', epochs)} MB at most, the largest "
        f"Python task {task_mb:.0f} MB."
    )


def stamps(parts: Parts) -> str:
    """The section of parts: when each was taken, of which commit, and what others used meanwhile."""
    rows = [
        (
            name,
            one["taken"].replace("T", " ").removesuffix("+00:00"),
            one["commit"] or "unknown",
            _took(one),
            _busy(one),
        )
        for name, one in parts.items()
    ]
    text = (
        "Times are UTC. Of others' load: cores that processes which are not the benchmark's kept busy meanwhile. "
        "A commit with `+` had uncommitted changes."
    )
    head = ("part", "taken", "commit", "took s", "others' load")
    return "\n".join(["## Parts", "", text, "", *table_lines(head, rows, texts=(0, 1, 2))]) if rows else ""


def _took(record: dict[str, Any]) -> str:
    return f"{record['took_s']:.0f}" if "took_s" in record else "–"


def _busy(record: dict[str, Any]) -> str:
    return f"{record['other_busy_cores']:.2f}" if "failed" not in record else "failed"


def versions(document: dict[str, Any], parts: Parts) -> str:
    """The section of versions, of everything that ran."""
    found: dict[str, set[str]] = {}
    for record in parts.values():
        for system in record.get("systems", {}).values():
            for name, version in system["versions"].items():
                found.setdefault(name, set()).add(version)
    lines = [f"* {name} {', '.join(sorted(versions))}" for name, versions in sorted(found.items())]
    return "\n".join(["## Versions", "", f"* Java {document['machine']['java']}", *lines])


def memory(system: str, epochs: Sequence[dict[str, Any]]) -> str:
    """Peak megabytes of a system's processes after an epoch; unknown for processes that end with each epoch."""
    return "–" if entry_of(system).fresh else f"{max(epoch['memory_bytes'] for epoch in epochs) / 1e6:.0f}"


def quartiles(spread: Spread) -> str:
    """The lower and the upper one."""
    return f"{spread.low:.2f}–{spread.high:.2f}"


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: Sequence[int] = (0,)) -> list[str]:
    """A table whose columns are figures, but for `texts`."""
    align = ["---" if at in texts else "---:" for at in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, align, *rows)]
