"""Lines and branches of the product that tests run, with the tests that run them: `make coverage`.

    python -m scripts.suite.covered run FOLDER -- pytest's arguments    run tests and store what they reach in FOLDER
    python -m scripts.suite.covered totals FOLDER                       count the lines and branches reached, by room
    python -m scripts.suite.covered lost BEFORE AFTER                   list what only BEFORE reaches, and its tests

Every process that a test starts is measured as well: Spark's Python workers, Airflow's tasks and commands. A process is
charged to the test that started it, and one that outlives its test, such as Airflow, to the first test that used it.
This module is the pytest plugin that names the running test.

`lost` compares lines by their text, so the two runs may be of different states of the product.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import coverage
import pytest
from coverage.exceptions import DataError

from scripts.processes import ROOT
from scripts.reference.markdown import table

CONFIGURATION = """[run]
branch = true
parallel = true
data_file = {folder}/data
source = {product}
context = ${{PYTEST_CURRENT_TEST-}}
patch = _exit, fork
disable_warnings = no-data-collected, module-not-measured, module-not-imported, already-imported
"""
WHOLE = "whole"


@contextmanager
def charged_to(test: str) -> Iterator[None]:
    """Charge the lines that this process runs to a test, if coverage measures them."""
    measuring = coverage.Coverage.current()
    if measuring is None:
        yield
        return
    measuring.switch_context(test)
    try:
        yield
    finally:
        measuring.switch_context("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with charged_to(item.nodeid):
        return (yield)


def run(folder: Path, words: Sequence[str], root: Path = ROOT) -> int:
    """Run pytest with these arguments in a checkout, measure every process, join the data. Returns its exit code."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*"):
        path.unlink()  # of an earlier run
    configuration = folder / "coverage.ini"
    configuration.write_text(CONFIGURATION.format(folder=folder, product=root / "pipeline"), encoding="utf-8")
    environment = {**os.environ, "COVERAGE_PROCESS_START": str(configuration)}
    command = [sys.executable, "-m", "pytest", "-p", "scripts.suite.covered", *words]
    code = subprocess.run(command, cwd=root, env=environment, check=False).returncode
    join(folder)
    return code


def join(folder: Path) -> None:
    """Join the data of all processes to one file and delete theirs. A process killed while it wrote has none."""
    whole = coverage.CoverageData(str(folder / WHOLE))
    killed = 0
    for path in sorted(folder.glob("data.*")):
        part = coverage.CoverageData(str(path))
        try:
            part.read()
            whole.update(part)
        except DataError:
            killed += 1
        path.unlink()
    whole.write()
    if killed:
        print(f"{killed} processes were killed while they wrote what they had reached")


@dataclass(frozen=True)
class Reached:
    """The lines and branches that a run reached.

    Attributes:
        root: the checkout in which it ran, with the sources.
    """

    data: coverage.CoverageData
    root: Path

    @classmethod
    def read(cls, folder: Path) -> Reached:
        """Read the data of a run. Raises FileNotFoundError: there is none in this folder."""
        if not (folder / WHOLE).is_file():
            raise FileNotFoundError(f"{folder} has no file `{WHOLE}`: run `python -m scripts.suite.covered run` first")
        data = coverage.CoverageData(str(folder / WHOLE))
        data.read()
        configured = (folder / "coverage.ini").read_text(encoding="utf-8")
        product = next(line for line in configured.splitlines() if line.startswith("source = "))
        return cls(data, Path(product.partition(" = ")[2]).parent)

    @cached_property
    def files(self) -> dict[str, Path]:
        """The measured files of the product, by their path below the root."""
        found = map(Path, self.data.measured_files())
        return {path.relative_to(self.root).as_posix(): path for path in found if path.is_file()}

    def lines(self, file: str) -> dict[int, str]:
        """Return the reached lines of a file, by number."""
        path = self.files.get(file)
        if path is None:
            return {}
        texts = path.read_text(encoding="utf-8").splitlines()
        return {n: texts[n - 1].strip() for n in self.data.lines(str(path)) or () if 0 < n <= len(texts)}

    def branches(self, file: str) -> set[tuple[str, str]]:
        """Return the reached jumps from line to line of a file, as the texts of both lines."""
        path = self.files.get(file)
        if path is None:
            return set()
        texts = ["", *(line.strip() for line in path.read_text(encoding="utf-8").splitlines())]
        arcs = self.data.arcs(str(path)) or []
        return {(_text(texts, start), _text(texts, end)) for start, end in arcs if start > 0}

    def tests_of(self, file: str, line: int) -> list[str]:
        """Return the tests that ran a line, without their cases; []: it ran outside of tests, such as at import."""
        contexts = self.data.contexts_by_lineno(str(self.files[file])).get(line, [])
        return sorted({function_of(context) for context in contexts} - {""})


def _text(texts: Sequence[str], line: int) -> str:
    return texts[line] if 0 < line < len(texts) else "exit"


def function_of(context: str) -> str:
    """`a.py::test_b[c] (call)|d` -> `a.py::test_b`: of a process's own context or of the running test."""
    words = context.rpartition("|")[2] or context.partition("|")[0]
    return words.partition(" (")[0].partition("[")[0]


@dataclass(frozen=True)
class Lost:
    """A line, or a branch, that one run reached and the other did not."""

    file: str
    line: int
    text: str
    tests: tuple[str, ...]


def lost(before: Reached, after: Reached) -> list[Lost]:
    """List the lines that only `before` reached. Of equal lines in a file, as many as are missing are listed."""
    missing = []
    for file in sorted(before.files):
        if not (after.root / file).is_file():
            continue  # the file was moved or deleted: nothing to lose
        reached = Counter(after.lines(file).values())
        exists = {text.strip() for text in (after.root / file).read_text(encoding="utf-8").splitlines()}
        for number, text in sorted(before.lines(file).items()):
            if reached[text]:
                reached[text] -= 1
            elif text in exists:
                missing.append(Lost(file, number, text, tuple(before.tests_of(file, number))))
    return missing


def lost_branches(before: Reached, after: Reached) -> list[tuple[str, str, str]]:
    """List the branches that only `before` took, between lines that both reached: file, from and to."""
    missing = []
    for file in sorted(before.files):
        texts = set(after.lines(file).values()) | {"exit"}
        lost_here = before.branches(file) - after.branches(file)
        missing += [(file, start, end) for start, end in sorted(lost_here) if start in texts and end in texts]
    return missing


def totals(reached: Reached) -> str:
    """Count the reached lines and branches of each room as a table."""
    rooms: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file in reached.files:
        room = "/".join(file.split("/")[2:-1][:2]) or "."
        lines, branches = len(reached.lines(file)), len(reached.branches(file))
        for counted in (room, "all"):
            rooms[counted][0] += lines
            rooms[counted][1] += branches
    rows = [[f"`{room}`", *(f"{count:,}" for count in counts)] for room, counts in sorted(rooms.items())]
    return table(["room", "lines", "branches"], rows)


def report(missing: Iterable[Lost], branches: Iterable[tuple[str, str, str]]) -> str:
    """Return the lost lines and branches as text, by file."""
    parts = []
    for one in missing:
        by = ", ".join(one.tests[:3]) or "no test: a process that outlived its test"
        parts.append(f"{one.file}:{one.line}: {one.text}\n    {by}")
    parts += [f"{file}: branch from `{start}` to `{end}`" for file, start, end in branches]
    return "\n".join(parts)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.suite.covered", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run tests and store what they reach")
    running.add_argument("folder", type=Path)
    running.add_argument("words", nargs="*", help="pytest's arguments, after --")
    commands.add_parser("totals", help="count lines and branches").add_argument("folder", type=Path)
    comparing = commands.add_parser("lost", help="list what only the first run reaches")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args(words)
    if given.command == "run":
        return run(given.folder, given.words)
    if given.command == "totals":
        print(totals(Reached.read(given.folder)))
        return 0
    before, after = Reached.read(given.before), Reached.read(given.after)
    missing, branches = lost(before, after), lost_branches(before, after)
    print(report(missing, branches))
    print(f"{len(missing)} lines and {len(branches)} branches are reached only by {given.before}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
