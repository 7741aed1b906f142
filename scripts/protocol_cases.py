"""List the cases of the seed systems: covered by a test, not applicable with a reason, or missing.

A test covers a case when its docstring has the line ``Case: <Class>.<case>``. A case that cannot exist here is a row
``<Class><TAB><case><TAB><reason>`` of a file below ``not_applicable/``. All cases are in ``cases.tsv``.

    python -m scripts.protocol_cases             print the table, then missing and wrong cases; exit 1 if there are any
    python -m scripts.protocol_cases --markdown  print the section of the suite's README.md between its `cases` markers
    python -m scripts.protocol_cases --update    write that into README.md
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.processes import ROOT
from scripts.reference.markdown import with_section

SUITE = ROOT / "tests" / "conformance" / "protocol"
MARK = "Case:"
DOCUMENT = SUITE / "README.md"
BEGIN, END = "<!-- cases -->\n", "<!-- end -->\n"


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One test of a seed system: its class and its name there."""

    of_class: str
    name: str

    def __str__(self) -> str:
        return f"{self.of_class}.{self.name}"


@dataclass(frozen=True, slots=True)
class Report:
    """The status of every case.

    Attributes:
        cases: all of them, in the order of `cases.tsv`.
        tests: case -> the tests that cite it, as ``file::test``. It may include unknown cases.
        reasons: case -> why it cannot exist here.
        faults: lines that cannot be parsed, or are duplicates.
    """

    cases: tuple[Case, ...]
    tests: dict[Case, tuple[str, ...]]
    reasons: dict[Case, str]
    faults: tuple[str, ...]

    def missing(self) -> list[Case]:
        """Return the cases that are neither covered nor declared not applicable."""
        return [case for case in self.cases if case not in self.tests and case not in self.reasons]

    def inconsistencies(self) -> list[str]:
        """Return every problem, one line each."""
        known = set(self.cases)
        unknown = sorted((self.tests.keys() | self.reasons.keys()) - known)
        both = sorted(self.tests.keys() & self.reasons.keys())
        return [
            *self.faults,
            *(f"unknown case {case}: {self._where(case)}" for case in unknown),
            *(f"{case} is declared not applicable and covered: {self._where(case)}" for case in both),
        ]

    def _where(self, case: Case) -> str:
        return ", ".join(self.tests.get(case, ("not_applicable/",)))

    def counts(self, of_class: str | None = None) -> tuple[int, int, int]:
        """Return (covered, not applicable, missing) of one class, or of all."""
        mine = [case for case in self.cases if of_class in (None, case.of_class)]
        covered = sum(case in self.tests for case in mine)
        not_applicable = sum(case in self.reasons and case not in self.tests for case in mine)
        return covered, not_applicable, len(mine) - covered - not_applicable

    def classes(self) -> list[str]:
        """Return every class once, in the order of `cases.tsv`."""
        return list(dict.fromkeys(case.of_class for case in self.cases))


def read_report(suite: Path = SUITE) -> Report:
    """Read `cases.tsv`, the docstrings of all tests below `suite`, and every `not_applicable/*.tsv`."""
    faults: list[str] = []
    cases = tuple(Case(*row) for row in _rows(suite / "cases.tsv", 2, faults))
    faults += [f"cases.tsv: {case} is listed twice" for case in _repeated(cases)]
    tests: dict[Case, tuple[str, ...]] = {}
    for file in sorted(suite.rglob("*.py")):
        for case, test in _cited(file, file.relative_to(suite).as_posix(), faults):
            tests[case] = (*tests.get(case, ()), test)
    reasons: dict[Case, str] = {}
    for file in sorted((suite / "not_applicable").glob("*.tsv")):
        for of_class, name, reason in _rows(file, 3, faults):
            case = Case(of_class, name)
            if case in reasons:
                faults.append(f"{file.name}: {case} is declared twice")
            reasons[case] = reason
    return Report(cases, tests, reasons, tuple(faults))


def _rows(file: Path, columns: int, faults: list[str]) -> Iterator[tuple[str, ...]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        row = tuple(cell.strip() for cell in line.split("\t"))
        if len(row) != columns or not all(row):
            faults.append(f"{file.name}:{number}: expected {columns} columns with a tab between, none empty")
        else:
            yield row


def _repeated(cases: Iterable[Case]) -> list[Case]:
    return sorted(case for case, times in Counter(cases).items() if times > 1)


def _cited(file: Path, name: str, faults: list[str]) -> Iterator[tuple[Case, str]]:
    """Yield each citation with the test that makes it; only a test function can cover a case."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        owner = getattr(node, "name", "the module")
        for line in _joined(ast.get_docstring(node) or ""):
            if not line.startswith(MARK):
                continue
            of_class, dot, case = line.removeprefix(MARK).strip().partition(".")
            if not dot or not of_class.isidentifier() or not case.isidentifier():
                faults.append(f"{name}::{owner}: expected `{MARK} <Class>.<case>` and nothing else, got {line!r}")
            elif not owner.startswith("test_") or isinstance(node, ast.ClassDef):
                faults.append(f"{name}::{owner}: only a test function can cover {of_class}.{case}")
            else:
                yield Case(of_class, case), f"{name}::{owner}"


def _joined(docstring: str) -> list[str]:
    """Return the lines of a docstring. A long name may continue on the line after its class and the dot."""
    lines: list[str] = []
    for line in docstring.splitlines():
        if lines and lines[-1].startswith(MARK) and lines[-1].endswith("."):
            lines[-1] += line.strip()
        else:
            lines.append(line.strip())
    return lines


def render_text(report: Report, wrong: Iterable[str]) -> str:
    """Return the table for a terminal, then every missing case and everything that is wrong."""
    width = max((len(of_class) for of_class in report.classes()), default=5)
    lines = [f"{'class':<{width}}  covered  not applicable  missing"]
    for of_class in [*report.classes(), None]:
        covered, not_applicable, missing = report.counts(of_class)
        lines.append(f"{of_class or 'total':<{width}}  {covered:>7}  {not_applicable:>14}  {missing:>7}")
    lines += [f"missing: {case}" for case in report.missing()]
    lines += [f"wrong: {line}" for line in wrong]
    return "\n".join(lines)


def render_markdown(report: Report) -> str:
    """Return the section of README.md: counts per class, and every case that cannot exist here, with its reason."""
    lines = ["| class | cases | covered | not applicable |", "|---|---|---|---|"]
    for of_class in [*report.classes(), None]:
        covered, not_applicable, missing = report.counts(of_class)
        row = f"{of_class or 'total'} | {covered + not_applicable + missing} | {covered} | {not_applicable}"
        lines.append(f"| {row} |")
    lines += ["", "| cannot exist here | why |", "|---|---|"]
    for case in report.cases:
        if case in report.reasons:
            lines.append(f"| {case} | {report.reasons[case].replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the report. Returns 1 if a case is missing or something is inconsistent."""
    parser = argparse.ArgumentParser(prog="protocol_cases", description=__doc__.split("\n")[0])
    parser.add_argument("--markdown", action="store_true", help="print the section of README.md")
    parser.add_argument("--update", action="store_true", help="write it into README.md")
    options = parser.parse_args(arguments)
    report = read_report()
    wrong = report.inconsistencies()
    current = DOCUMENT.read_text(encoding="utf-8")
    wanted = with_section(current, BEGIN, render_markdown(report), END)
    if options.update:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif wanted != current:
        wrong.append(f"the section in {DOCUMENT.name} is not this report: run with --update")
    if options.markdown:
        print(render_markdown(report))
        for line in [*(f"missing: {case}" for case in report.missing()), *(f"wrong: {line}" for line in wrong)]:
            print(line, file=sys.stderr)
    else:
        print(render_text(report, wrong))
    return 1 if wrong or report.missing() else 0


if __name__ == "__main__":
    sys.exit(main())
