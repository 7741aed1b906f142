"""The command line: `measure` some workloads for a look, `run` a whole mode into its report, `report` it again.

Open tables, an old job and single commands are measured, and reported, apart from those.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.environments import unavailable
from bench.machine import commit, describe
from bench.options import MONTHS, NEIGHBOURS, SMALL_OBJECTS, parser
from bench.parts import Part, parts_of, present
from bench.processes import WorkerFailed
from bench.reports.report import memory, render, report_name
from bench.reports.results import MeasuredElsewhere, Results
from bench.reports.statistics import Spread
from bench.reports.targets import Record, counted, state_bytes_per_key
from bench.rounds import Plan, Say, run_workload
from bench.scheduled.parts import measure_airflow
from bench.studies.command_memory import measure_memory, render_memory
from bench.studies.command_times import measure_commands, render_commands
from bench.studies.driver import measure_driver, render_driver
from bench.studies.kafka import kafka_parts
from bench.studies.kafka_report import render_kafka
from bench.studies.months.neighbours import measure_neighbours
from bench.studies.months.report import render_months
from bench.studies.months.small_job import FORMATS, measure_months
from bench.studies.months.small_objects import measure_small_objects
from bench.studies.old_job import grow_old
from bench.studies.old_job_report import render_old_job
from bench.studies.page_times import measure_pages, render_pages
from bench.studies.round_trips import measure_round_trips
from bench.studies.round_trips_report import draw_round_trips, render_round_trips
from bench.studies.tables import lacking_here, table_parts
from bench.studies.tables_report import render_tables
from bench.systems.registry import SYSTEMS, TOOLS
from bench.workloads.equality import WrongResult
from bench.workloads.workloads import WORKLOADS, Workload
from scripts.processes import ROOT

Write = Callable[[dict[str, Any], Path, Path], None]
"""Writes what follows from raw results, given the document, its file and the folder."""

PLOTTER = ROOT / TOOLS / "bin" / "python"


def main(arguments: list[str]) -> int:
    """Run the benchmark. Returns the exit code: 0, 1 when a system failed or was wrong, 2 for bad usage."""
    options = parser().parse_args(arguments)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", file=sys.stderr, flush=True)

    do = {
        "measure": _measure,
        "run": _run,
        "report": _report,
        "old-job": _old_job,
        "months": _months,
        "commands": _commands,
        "pages": _pages,
        "command-memory": _command_memory,
        "driver": _driver,
        "round-trips": _round_trips,
        "tables": _tables,
        "kafka": _kafka,
        "airflow": _airflow,
    }[options.command]
    return int(do(options, say))


def _measure(options: argparse.Namespace, say: Say) -> int:
    plan = Plan(options.warmups, options.rounds)
    records = []
    for name in options.workloads:
        workload = _resized(WORKLOADS[name], options)
        wanted = [system for system in options.systems if SYSTEMS[system].runs(workload)]
        systems = present(wanted)
        if systems != wanted:
            say(f"left out, because their environment is not built: {', '.join(set(wanted) - set(systems))}")
        try:
            record = run_workload(workload, systems, plan, options.folder.resolve(), say)
        except (WrongResult, WorkerFailed) as error:
            print(str(error), file=sys.stderr)
            return 1
        records.append(record)
        print(table(record), flush=True)
    if options.output is not None:
        options.output.write_text(
            json.dumps({"machine": describe(), "commit": commit(), "workloads": records}, indent=1) + "\n"
        )
    return 0


def _run(options: argparse.Namespace, say: Say) -> int:
    """Measure the parts of a mode; write their figures, its report and the plots."""
    file = options.results / f"results-{options.mode}.json"
    return _measure_parts(parts_of(options.mode), options, say, file, _write_report, unavailable())


def _tables(options: argparse.Namespace, say: Say) -> int:
    """Measure open tables side by side, or with `--report` not again; write their figures, TABLES.md and its plot."""
    file = options.results / "results-tables.json"
    if options.report:
        return _write_again(file, options, say, _write_tables)
    return _measure_parts(table_parts(options.mode), options, say, file, _write_tables, lacking_here())


def _kafka(options: argparse.Namespace, say: Say) -> int:
    """Measure Kafka side by side, or with `--report` not again; write its figures and KAFKA.md."""
    file = options.results / "results-kafka.json"
    if options.report:
        return _write_again(file, options, say, _write_kafka)
    return _measure_parts(kafka_parts(options.mode), options, say, file, _write_kafka, unavailable())


def _write_again(file: Path, options: argparse.Namespace, say: Say, write: Write) -> int:
    """Write what follows from raw results."""
    if not file.exists():
        say(f"{file} does not exist: run `python -m bench {options.command}` first")
        return 2
    if _lacks_plotter(say):
        return 2
    write(json.loads(file.read_text(encoding="utf-8")), file, options.results)
    return 0


def _measure_parts(
    every: Sequence[Part],
    options: argparse.Namespace,
    say: Say,
    file: Path,
    write: Write,
    lacking: dict[str, str],
) -> int:
    """Measure the requested parts. Each result is stored immediately, next to the retained ones.

    Args:
        file: of the raw figures. write: writes what follows from them, given the document, the file and the folder.
        lacking: environments that are not there, and why.
    """
    parts = [part for part in every if not options.only or part.name.startswith(tuple(options.only))]
    names = [part.name for part in every]
    if not parts:
        say(f"no part of the {options.mode} mode begins with {' or '.join(options.only)}: {', '.join(names)}")
        return 2
    try:
        results = Results(file, options.mode, names, keep=options.resume or bool(options.only), lacking=lacking)
    except MeasuredElsewhere as error:
        say(str(error))
        return 2
    if _lacks_plotter(say):
        return 2
    failed = False
    for part in parts:
        if options.resume and results.has(part.name):
            say(f"{part.name}: measured already")
            continue
        say(f"{part.name}: begins")
        record = results.measure(part.name, partial(_record_of, part, options.folder.resolve(), say))
        failed |= "failed" in record
        if record.get("changed_keys"):
            print(table(record), flush=True)
    write(results.document, file, options.results)
    say(f"wrote the report of {file}")
    return int(failed)


def _record_of(part: Part, folder: Path, say: Say) -> Record:
    """A part's record; of one that a system spoils, its failure in one line."""
    try:
        return part.measure(folder, say)
    except (WrongResult, WorkerFailed) as error:
        print(str(error), file=sys.stderr)
        return {"failed": error.summary}


def _report(options: argparse.Namespace, say: Say) -> int:
    file = options.results / f"results-{options.mode}.json"
    if not file.exists():
        say(f"{file} does not exist: run `make bench MODE={options.mode}` first")
        return 2
    if _lacks_plotter(say):
        return 2
    _write_report(json.loads(file.read_text(encoding="utf-8")), file, options.results)
    return 0


def _old_job(options: argparse.Namespace, say: Say) -> int:
    """Let one job grow old in this process; write its figures, OLD_JOB.md and its plot."""
    if _lacks_plotter(say):
        return 2
    record = grow_old(options.epochs, options.folder.resolve() / "old-job", say)
    document = {"machine": describe(), "commit": commit(), "old_job": record}
    file = options.results / "results-old-job.json"
    file.write_text(json.dumps(document) + "\n", encoding="utf-8")
    (options.results / "OLD_JOB.md").write_text(render_old_job(document), encoding="utf-8")
    _draw(file, options.results)
    say(f"wrote {options.results / 'OLD_JOB.md'}")
    return 0


def _months(options: argparse.Namespace, say: Say) -> int:
    """Run thousands of epochs for each kind of table; write their figures, MONTHS.md and its plot."""
    if _lacks_plotter(say):
        return 2
    file, folder = options.results / "results-months.json", options.folder.resolve() / "months"
    parts = tuple(options.only or MONTHS)
    document = json.loads(file.read_text(encoding="utf-8")) if options.only and file.exists() else {"months": {}}
    commits = document.get("commits", {}) | dict.fromkeys(parts, commit())
    document |= {"machine": describe(), "commits": commits}
    measured = measure_months(options.epochs, tuple(one for one in FORMATS if one in parts), folder, say)
    months = document["months"] | measured
    document["months"] = {name: months[name] for name in FORMATS if name in months}
    if NEIGHBOURS in parts:
        document[NEIGHBOURS] = measure_neighbours(folder, say)
    if SMALL_OBJECTS in parts:
        document[SMALL_OBJECTS] = measure_small_objects(options.objects, folder, say)
    file.write_text(json.dumps(document) + "\n", encoding="utf-8")
    (options.results / "MONTHS.md").write_text(render_months(document), encoding="utf-8")
    _draw(file, options.results)
    say(f"wrote {options.results / 'MONTHS.md'}")
    return 0


def _commands(options: argparse.Namespace, say: Say) -> int:
    """Time the commands of one job on a slow bucket; write their figures and COMMANDS.md."""
    record = measure_commands(options.epochs, options.rounds, options.folder.resolve() / "commands", say)
    document = {"machine": describe(), "commit": commit(), "commands": record}
    (options.results / "results-commands.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
    (options.results / "COMMANDS.md").write_text(render_commands(document), encoding="utf-8")
    say(f"wrote {options.results / 'COMMANDS.md'}")
    return 0


def _pages(options: argparse.Namespace, say: Say) -> int:
    """Time the pages of many old jobs; write their figures and PAGES.md."""
    file, folder = options.results / "results-pages.json", options.folder.resolve() / "pages"
    document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"pages": {}}
    for store in options.only:
        record = measure_pages(store, options.jobs, options.epochs, options.rounds, folder, say)
        document["pages"][store] = record | {"machine": describe(), "commit": commit()}
        file.write_text(json.dumps(document) + "\n", encoding="utf-8")
    (options.results / "PAGES.md").write_text(render_pages(document), encoding="utf-8")
    say(f"wrote {options.results / 'PAGES.md'}")
    return 0


def _command_memory(options: argparse.Namespace, say: Say) -> int:
    """Measure the memory of commands over so many keys; write their figures and COMMAND_MEMORY.md.

    With `--before` the figures become those of an earlier commit, against which later ones are shown.
    """
    file = options.results / "results-command-memory.json"
    document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"command_memory": {}, "before": {}}
    for keys in options.keys:
        record = measure_memory(keys, options.folder.resolve() / "command-memory", say)
        side = "command_memory" if options.before is None else "before"
        document[side][str(keys)] = record | {"machine": describe(), "commit": options.before or commit()}
        file.write_text(json.dumps(document) + "\n", encoding="utf-8")
        (options.results / "COMMAND_MEMORY.md").write_text(render_memory(document), encoding="utf-8")
    say(f"wrote {options.results / 'COMMAND_MEMORY.md'}")
    return 0


def _driver(options: argparse.Namespace, say: Say) -> int:
    """Run a driver of one gigabyte over so many keys; write its figures and DRIVER.md."""
    file = options.results / "results-driver.json"
    document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"driver": {}}
    for keys in options.keys:
        record = measure_driver(keys, options.folder.resolve() / "driver", say)
        document["driver"][str(keys)] = record | {"machine": describe(), "commit": commit()}
        file.write_text(json.dumps(document) + "\n", encoding="utf-8")
        (options.results / "DRIVER.md").write_text(render_driver(document), encoding="utf-8")
    say(f"wrote {options.results / 'DRIVER.md'}")
    return 0


def _airflow(options: argparse.Namespace, say: Say) -> int:
    """Measure parts of the way through Airflow; write their figures and AIRFLOW.md."""
    folder, results = options.folder.resolve() / "airflow", options.results.resolve()
    try:
        measure_airflow(options.only or (), options.rounds, folder, results, say)
    except (RuntimeError, TimeoutError) as error:
        print(str(error), file=sys.stderr)
        return 1
    return 0


def _round_trips(options: argparse.Namespace, say: Say) -> int:
    """Measure the round trips of an epoch; write their figures, ROUND_TRIPS.md and its picture.

    With `--before` the figures become those of an earlier commit, against which later ones are shown.
    """
    file = options.results / "results-round-trips.json"
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    record = measure_round_trips(options.epochs, options.delays, options.folder.resolve() / "round-trips", say)
    if options.before is not None:
        document = stored | {"before": {"commit": options.before, "round_trips": record}}
    else:
        document = stored | {"machine": describe(), "commit": commit(), "round_trips": record}
    file.write_text(json.dumps(document) + "\n", encoding="utf-8")
    if "round_trips" in document:
        (options.results / "ROUND_TRIPS.md").write_text(render_round_trips(document), encoding="utf-8")
        (options.results / "plots" / "round-trips.svg").write_text(draw_round_trips(document), encoding="utf-8")
    say(f"wrote {file}")
    return 0


def _lacks_plotter(say: Say) -> bool:
    """Whether the environment that draws the plots is missing: better known before the hour than after it."""
    if not PLOTTER.exists():
        say(f"{PLOTTER} does not exist: `make bench` builds what draws the plots. Nothing was measured or written.")
    return not PLOTTER.exists()


def _write_report(document: dict[str, Any], file: Path, folder: Path) -> None:
    (folder / report_name(document["mode"])).write_text(render(document), encoding="utf-8")
    _draw(file, folder)


def _write_tables(document: dict[str, Any], file: Path, folder: Path) -> None:
    (folder / "TABLES.md").write_text(render_tables(document), encoding="utf-8")
    _draw(file, folder)


def _write_kafka(document: dict[str, Any], file: Path, folder: Path) -> None:
    (folder / "KAFKA.md").write_text(render_kafka(document), encoding="utf-8")


def _draw(file: Path, folder: Path) -> None:
    subprocess.run(
        [str(PLOTTER), "-m", "bench.reports.plots", str(file.resolve()), str((folder / "plots").resolve())],
        cwd=ROOT,
        check=True,
    )


def table(record: dict[str, Any]) -> str:
    """One workload's medians and spreads, for a terminal."""
    workload, busy = record["workload"], record["other_busy_cores"]
    head = ("wall s", "25–75 %", "CPU s", "25–75 %", "state B/key", "memory MB")
    lines = [
        f"{workload['name']}: {workload['says']}; other processes kept {busy:.2f} cores busy",
        _line("system", head),
    ]
    for name in record["systems"]:
        epochs = counted(record, name)
        wall, cpu = (Spread.of([epoch[figure] for epoch in epochs]) for figure in ("wall_s", "cpu_s"))
        state = state_bytes_per_key(record, name)
        per_key = "–" if state is None else f"{state.median:.1f}"
        cells = (_seconds(wall), _range(wall), _seconds(cpu), _range(cpu), per_key, memory(name, epochs))
        lines.append(_line(name, cells))
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str]) -> str:
    return f"  {name:<28}" + "".join(f"{cell:>15}" for cell in cells)


def _seconds(spread: Spread) -> str:
    return f"{spread.median:.2f}"


def _range(spread: Spread) -> str:
    return f"{spread.low:.2f}–{spread.high:.2f}"


def _resized(workload: Workload, options: argparse.Namespace) -> Workload:
    shape = workload.shape
    if options.rows is not None:
        shape = replace(shape, rows=options.rows)
    if options.keys is not None:
        shape = replace(shape, keys=options.keys)
    return replace(workload, shape=shape)
