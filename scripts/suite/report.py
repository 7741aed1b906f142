"""Write the cost of the tests: `tests/COSTS.md` for readers, `tests/durations.json` for the scheduler.

    python -m scripts.suite.report costs.json

`costs.json` is what `scripts.suite.recorder` wrote during one run of the suite.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scripts.processes import ROOT
from scripts.reference.markdown import table

PAGE = ROOT / "tests" / "COSTS.md"
DURATIONS = ROOT / "tests" / "durations.json"

INTRODUCTION = """\
Written by `make durations`, from one run of `make test`. Seconds are wall-clock seconds of the process that ran the
test.
CPU seconds are that process and the children it has waited for."""

SLOW_SECONDS = 20
"""A test of `make test` that takes longer is listed by name."""

IMPORTS = (
    "milepost.api",
    "milepost.cli.main",
    "milepost.jobmaster.jobmaster",
    "pyarrow",
    "pandas",
    "pyspark.sql",
    "deltalake",
    "pyiceberg.catalog",
    "boto3",
    "duckdb",
    "hypothesis",
    "great_expectations",
    "airflow.sdk",
    "airflow.models",
)
"""What most processes of the suite import first."""


def file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def folder_of(nodeid: str) -> str:
    """Return the room of a test: up to three folders below the root."""
    return "/".join(Path(file_of(nodeid)).parent.parts[:3])


def durations(tests: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each test file, which is the unit that the scheduler assigns."""
    seconds: Counter[str] = Counter()
    for nodeid, test in tests.items():
        seconds[file_of(nodeid)] += test["wall"]
    return {file: round(seconds[file], 1) for file in sorted(seconds)}


def import_seconds(module: str) -> float | None:
    """Return the CPU time of a new interpreter that imports one module, less that of an empty one; None: it fails."""
    code = "import resource; {}; usage = resource.getrusage(0); print(usage.ru_utime + usage.ru_stime)"
    spent = []
    for statement in ("pass", f"import {module}"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(statement)], capture_output=True, text=True, check=False, cwd=ROOT
        )
        if done.returncode != 0:
            return None
        spent.append(float(done.stdout.split()[-1]))
    return spent[1] - spent[0]


def page(document: Mapping[str, Any], imports: Mapping[str, float | None]) -> str:
    """Return the page as Markdown.

    Args:
        document: what the recorder wrote. imports: CPU seconds by module; None where the import failed.
    """
    tests = document["tests"]
    by_test = sum(test["cpu"] for test in tests.values())
    sections = [
        "# Where the suite's time goes",
        INTRODUCTION,
        table(
            ["", ""],
            [
                ["tests", f"{len(tests):,}"],
                ["processors", str(os.cpu_count())],
                ["wall clock", _minutes(document["wall"])],
                ["CPU, all processes", _minutes(document["cpu"])],
                ["CPU charged to one test", _minutes(by_test)],
                ["CPU of what outlives a test: servers, JVMs, imports", _minutes(document["cpu"] - by_test)],
                ["collection, per process", ", ".join(f"{s:.0f} s" for s in document["collections"].values())],
            ],
        ),
        "## By folder",
        _ranking(tests, folder_of, 40, "folder"),
        "## By file",
        _ranking(tests, file_of, 50, "file"),
        f"## Tests of more than {SLOW_SECONDS} seconds",
        _slow(tests),
        "## By fixture",
        "A fixture is charged without the fixtures that it requests. A session's server is a fixture.",
        _fixtures(tests),
        "## By number of tests",
        "Test functions with the most cases.",
        _functions(tests),
        "## Started programs",
        _programs(tests),
        "## Imports",
        "CPU time of a new interpreter that imports one module and all that it needs.",
        table(
            ["module", "CPU s"],
            [[f"`{name}`", "fails" if spent is None else f"{spent:.2f}"] for name, spent in imports.items()],
        ),
    ]
    return "\n\n".join(sections) + "\n"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def _ranking(tests: Mapping[str, Any], group: Any, most: int, title: str) -> str:
    wall: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for nodeid, test in tests.items():
        wall[group(nodeid)] += test["wall"]
        cpu[group(nodeid)] += test["cpu"]
        number[group(nodeid)] += 1
    rows = [
        [f"`{name}`", f"{number[name]:,}", f"{seconds:.0f}", f"{cpu[name]:.0f}"]
        for name, seconds in wall.most_common(most)
    ]
    return table([title, "tests", "s", "CPU s"], rows)


def _slow(tests: Mapping[str, Any]) -> str:
    slow = sorted(
        ((test["wall"], nodeid) for nodeid, test in tests.items() if test["wall"] > SLOW_SECONDS), reverse=True
    )
    return table(["test", "s"], [[f"`{nodeid}`", f"{seconds:.0f}"] for seconds, nodeid in slow]) if slow else "None."


def _fixtures(tests: Mapping[str, Any]) -> str:
    seconds: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for test in tests.values():
        seconds.update(test["fixtures"])
        number.update(test["fixtures"].keys())
    rows = [[f"`{name}`", f"{number[name]:,}", f"{spent:.0f}"] for name, spent in seconds.most_common(40)]
    return table(["fixture", "set-ups", "s"], rows)


def _functions(tests: Mapping[str, Any]) -> str:
    wall: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for nodeid, test in tests.items():
        name = nodeid.split("::", 1)[1].split("[", 1)[0]
        wall[name] += test["wall"]
        number[name] += 1
    rows = [[f"`{name}`", f"{cases:,}", f"{wall[name]:.0f}"] for name, cases in number.most_common(25)]
    return table(["test function", "cases", "s"], rows)


def _programs(tests: Mapping[str, Any]) -> str:
    number: Counter[str] = Counter()
    for test in tests.values():
        number.update(test["programs"])
    return table(["program", "starts"], [[f"`{name}`", f"{starts:,}"] for name, starts in number.most_common(30)])


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="write tests/COSTS.md and tests/durations.json")
    parser.add_argument("costs", type=Path, help="what `scripts.suite.recorder` wrote")
    options = parser.parse_args(None if arguments is None else list(arguments))
    document = json.loads(options.costs.read_text(encoding="utf-8"))
    PAGE.write_text(page(document, {name: import_seconds(name) for name in IMPORTS}), encoding="utf-8")
    DURATIONS.write_text(json.dumps(durations(document["tests"]), indent=0) + "\n", encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and {DURATIONS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
