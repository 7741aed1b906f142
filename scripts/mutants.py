"""Seeded mutants: each breaks a rule in a copy of the tree, and the tests that it names must fail there.

A mutant is caught if every test that it names fails in its copy, and passes in an unchanged copy. A survivor means that
a test is missing. The list is in `tests/mutants/`. git decides which files belong to the tree.

    python -m scripts.mutants              run all of them, print which test catches which; exit 1 if one survives
    python -m scripts.mutants I8 token     run those of invariant I8, or with this text in their name or function
    python -m scripts.mutants --show I8    print what they change, without running anything
    python -m scripts.mutants --markdown   print the table of tests/mutants/README.md, without running anything
    python -m scripts.mutants --update     write that table into tests/mutants/README.md
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from xml.etree import ElementTree

from scripts.processes import ROOT
from scripts.reference.markdown import with_section
from scripts.tree_copies import TreeCopies, tracked_files
from tests.mutants.mutant import Mutant
from tests.mutants.places import MisplacedMutant
from tests.mutants.seeded import ALL

DOCUMENT = ROOT / "tests" / "mutants" / "README.md"
BEGIN, END = "<!-- mutants -->\n", "<!-- end of mutants -->\n"
TIMEOUT_S = 240.0
"""Timeout of the tests of one mutant, which take seconds. A test that hangs proves nothing."""

_RAN = (0, 1)
_LAST_LINES = 25


class Verdict(Enum):
    """The result of a mutant. Only CAUGHT is a success."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the tests of one mutant.

    Attributes:
        failed: which of them failed. output: the end of the output of pytest.
    """

    mutant: Mutant
    verdict: Verdict
    failed: tuple[str, ...]
    output: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest: exit code (None: a timeout), the tests that ran, and those that failed."""

    code: int | None
    ran: frozenset[str]
    failed: frozenset[str]
    output: str


def try_mutant(mutant: Mutant, root: Path, copies: TreeCopies) -> Outcome:
    """Apply one mutant to a copy and run its tests there."""
    started = time.monotonic()
    try:
        mutated = mutant.apply(root)
    except MisplacedMutant as error:
        return Outcome(mutant, Verdict.BROKEN, (), str(error), time.monotonic() - started)
    # One test fails with its first failing case. Of several tests, each must run.
    options = ("-x",) if len(mutant.tests) == 1 else ()
    with copies.lend(mutated.file, mutated.source) as copy:
        run = run_tests(copy, mutant.tests, TIMEOUT_S, *options)
    failed = tuple(test for test in mutant.tests if test in run.failed)
    if run.code not in _RAN or not run.ran.issuperset(mutant.tests):
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.CAUGHT if len(failed) == len(mutant.tests) else Verdict.SURVIVED
    return Outcome(mutant, verdict, failed, run.output, time.monotonic() - started)


def unchanged_failures(mutants: Iterable[Mutant], copies: TreeCopies) -> str:
    """Run every named test in an unchanged copy. Returns "" if all pass, otherwise the output of pytest."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    with copies.lend() as copy:
        run = run_tests(copy, tests, TIMEOUT_S + 10 * len(tests))
    missing = [test for test in tests if test not in run.ran]
    return "" if run.code == 0 and not missing else "\n".join([run.output, *(f"did not run: {one}" for one in missing)])


def try_all(
    mutants: Sequence[Mutant], root: Path, copies: TreeCopies, jobs: int, report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Try mutants in parallel. `report` is called with each outcome, in the order of the list."""
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(lambda mutant: try_mutant(mutant, root, copies), mutants):
            report(outcome)
            outcomes.append(outcome)
    return outcomes


def run_tests(folder: Path, tests: Sequence[str], timeout_s: float = TIMEOUT_S, *options: str) -> Run:
    """Run tests in a copy of the tree."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line"]
    command += ["--hypothesis-seed=1", *options]
    command += [f"--junitxml={report}", *tests]
    # The testkit imports scripts, so the name of its profile is repeated here. pytest stops if it is unknown.
    environment = {**os.environ, "MILEPOST_SEED": "1", "MILEPOST_PROFILE": "mutants", "PYTHONHASHSEED": "1"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
        code: int | None = process.returncode
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        code = None
    end = "\n".join(output.decode(errors="replace").splitlines()[-_LAST_LINES:])
    ran, failed = _results(report, tests) if code in _RAN else (frozenset(), frozenset())
    return Run(code, ran, failed, end if code is not None else f"{end}\nkilled after {timeout_s:.0f} s")


def _results(report: Path, tests: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return which of these tests ran, and which of them failed in at least one of their cases."""
    by_key = {_junit_key(test): test for test in tests}
    ran: set[str] = set()
    failed: set[str] = set()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        test = by_key.get((case.get("classname", ""), case.get("name", "").partition("[")[0]))
        if test is None:
            continue
        ran.add(test)
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(test)
    return frozenset(ran), frozenset(failed)


def _junit_key(test: str) -> tuple[str, str]:
    """Return the class and test name in pytest's report for ``file::test`` or ``file::class::test``."""
    owner, _, name = test.rpartition("::")
    return owner.replace(".py", "").replace("::", ".").replace("/", "."), name


def chosen(words: Sequence[str]) -> tuple[Mutant, ...]:
    """Return the mutants of some invariants, or with a text in their name or function. Without words: all."""
    if not words:
        return ALL
    return tuple(one for one in ALL if any(word == one.invariant or word in one.name + one.function for word in words))


def render_markdown(mutants: Iterable[Mutant]) -> str:
    """Return the table of `tests/mutants/README.md`: each mutant, its rule, its function, and the tests that fail."""
    lines = ["| breaks | mutant | in | caught by |", "|---|---|---|---|"]
    for mutant in mutants:
        tests = ", ".join(f"`{test.removeprefix('tests/')}`" for test in mutant.tests)
        lines.append(f"| {mutant.invariant} | {mutant.name} | `{mutant.function}` | {tests} |")
    return "\n".join(lines)


def render_change(mutant: Mutant, root: Path) -> str:
    """Return what a mutant changes, as a diff of the statements. Raises MisplacedMutant."""
    mutated = mutant.apply(root)
    lines: list[str] = [f"{mutated.file}: {mutant.name}"]
    for before, after in mutated.changed_statements():
        lines += _diff(before, after)
    return "\n".join(lines)


def _diff(before: ast.stmt, after: ast.stmt) -> Iterator[str]:
    texts = [ast.unparse(one).splitlines() for one in (before, after)]
    for line in difflib.unified_diff(*texts, lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            yield f"    {line}"


def _print_outcome(outcome: Outcome) -> None:
    mutant = outcome.mutant
    print(f"{outcome.verdict.value:<8}  {mutant.invariant:<3}  {mutant.name}  ({outcome.seconds:.0f} s)", flush=True)
    for test in mutant.tests:
        if outcome.verdict is not Verdict.CAUGHT:
            print(f"          {'failed' if test in outcome.failed else 'did not fail'}: {test}")
    if outcome.verdict is Verdict.BROKEN:
        print("\n".join(f"          | {line}" for line in outcome.output.splitlines()))


def main(arguments: list[str] | None = None) -> int:
    """Run mutants. Returns 1 if one survives or its tests could not run, 2 if there is nothing to run."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="only mutants of this invariant, or with this text in their name")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="how many run side by side")
    parser.add_argument("--show", action="store_true", help="print what they change, run nothing")
    parser.add_argument("--markdown", action="store_true", help="print the table of README.md, run nothing")
    parser.add_argument("--update", action="store_true", help="write it into README.md, run nothing")
    options = parser.parse_args(arguments)
    if options.markdown or options.update:
        table = render_markdown(ALL)
        if options.update:
            document = DOCUMENT.read_text(encoding="utf-8")
            DOCUMENT.write_text(with_section(document, BEGIN, table, END), encoding="utf-8")
        if options.markdown:
            print(table)
        return 0
    mutants = chosen(options.words)
    if not mutants:
        print(f"no mutant of or named {' or '.join(options.words)}", file=sys.stderr)
        return 2
    if options.show:
        print("\n\n".join(render_change(mutant, ROOT) for mutant in mutants))
        return 0
    return _run(mutants, max(1, options.jobs))


def _run(mutants: Sequence[Mutant], jobs: int) -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="milepost-mutants-") as folder:
        copies = TreeCopies(ROOT, Path(folder), jobs, tracked_files(ROOT))
        wrong = unchanged_failures(mutants, copies)
        if wrong:
            print(f"the named tests do not pass in an unchanged copy, so nothing is proven:\n{wrong}", file=sys.stderr)
            return 1
        outcomes = try_all(mutants, ROOT, copies, jobs, _print_outcome)
    caught = sum(outcome.verdict is Verdict.CAUGHT for outcome in outcomes)
    print(f"{caught} of {len(outcomes)} mutants caught in {time.monotonic() - started:.0f} s")
    return 0 if caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
