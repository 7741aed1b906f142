"""The command line: what to measure, where to work, and what is shown of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.equality import WrongResult
from bench.machine import ROOT, describe
from bench.processes import WorkerFailed, python_of
from bench.rounds import Plan, run_workload
from bench.statistics import Spread
from bench.systems.registry import SYSTEMS
from bench.workloads import WORKLOADS, Workload


def main(arguments: list[str]) -> int:
    """Run the benchmark. Returns the exit code: 0, 1 when a system failed or was wrong, 2 for bad usage."""
    options = _parser().parse_args(arguments)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", file=sys.stderr, flush=True)

    folder = options.folder.resolve()
    plan = Plan(options.warmups, options.rounds)
    records = []
    for name in options.workloads:
        workload = _resized(WORKLOADS[name], options)
        systems = [system for system in options.systems if SYSTEMS[system].runs(workload)]
        missing = [system for system in systems if not python_of(system).exists()]
        if missing:
            say(f"{name}: left out, because their environment is not built: {', '.join(missing)}")
        try:
            record = run_workload(workload, [s for s in systems if s not in missing], plan, folder, say)
        except (WrongResult, WorkerFailed) as error:
            print(str(error), file=sys.stderr)
            return 1
        records.append(record)
        print(table(record), flush=True)
    if options.output is not None:
        document = {
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": describe(),
            "workloads": records,
        }
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def table(record: dict[str, Any]) -> str:
    """One workload's medians and spreads, for a terminal."""
    workload = record["workload"]
    busy = record["other_busy_cores"]
    head = ("wall s", "25–75 %", "CPU s", "25–75 %", "state B/key", "memory MB")
    lines = [
        f"{workload['name']}: {workload['says']}; other processes kept {busy:.2f} cores busy",
        _line("system", head),
    ]
    for name, system in record["systems"].items():
        epochs = [epoch for epoch in system["epochs"] if epoch["counted"]]
        wall, cpu = (Spread.of([epoch[figure] for epoch in epochs]) for figure in ("wall_s", "cpu_s"))
        state = Spread.of([e["figures"].get("state_bytes", 0) / record["changed_keys"][e["number"]] for e in epochs])
        memory = max(epoch["memory_bytes"] for epoch in epochs) / 1e6
        cells = (_seconds(wall), _range(wall), _seconds(cpu), _range(cpu), f"{state.median:.1f}", f"{memory:.0f}")
        lines.append(_line(name, cells))
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str]) -> str:
    return f"  {name:<24}" + "".join(f"{cell:>13}" for cell in cells)


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
    if shape == workload.shape:
        return workload
    return replace(workload, name=f"{workload.name}-{shape.keys}keys-{shape.rows}rows", shape=shape)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Epochs side by side on several systems.")
    parser.add_argument(
        "--workloads", nargs="+", choices=list(WORKLOADS), default=["keyed-10k", "keyed-1m", "keyed-5m"]
    )
    parser.add_argument(
        "--systems", nargs="+", choices=list(SYSTEMS), default=["milepost", "spark-hdfs", "limit-numpy"]
    )
    parser.add_argument("--rounds", type=int, default=3, help="counted epochs of each system")
    parser.add_argument("--warmups", type=int, default=3, help="epochs before those; the first one fills the state")
    parser.add_argument("--rows", type=int, help="rows per epoch, instead of the workload's")
    parser.add_argument("--keys", type=int, help="number of keys, instead of the workload's")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".milepost" / "bench", help="for inputs and scratch files"
    )
    parser.add_argument("--output", type=Path, help="file for the raw results, as JSON")
    return parser
