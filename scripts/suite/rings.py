"""The three rings of tests: `make check`, `make test` and `make test-all`.

    python -m scripts.suite.rings                      count the tests and the claims of each ring, by folder
    python -m scripts.suite.rings tests/unit/jobspec      list the claims of a folder, each with the ring that proves it

This module is also a pytest plugin, which tests/conftest.py loads. Its options choose what a run has:

    pytest --ring check              tests of one room, without Spark and Airflow, each of which is short
    pytest --ring test               those and every other test that is not marked `deep`
    pytest --ring test-all           tests marked `deep`, and every property test again, with more examples
    pytest --ring test-all --part 2/6    the second of six shares of that ring; together the six are all of it
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from scripts.reference.markdown import table

CHECKED = ("tests/unit/", "tests/conformance/protocol/")
NOT_CHECKED = tuple(f"tests/unit/{name}/" for name in ("airflow", "bench", "scripts", "spark"))
"""Folders of `make check`, and folders below them that it leaves to `make test`: they start servers or processes."""

PROPERTY = "hypothesis"
"""The mark that Hypothesis gives to its tests."""


class Ring(StrEnum):
    """The smallest ring that runs a test."""

    CHECK = "check"
    TEST = "test"
    TEST_ALL = "test-all"


LEFT_OUT = {
    Ring.CHECK: re.compile(rb"^pytestmark = pytest\.mark\.(deep|long)$", re.MULTILINE),
    Ring.TEST: re.compile(rb"^pytestmark = pytest\.mark\.deep$", re.MULTILINE),
}
"""The line that leaves a whole file out of a ring."""


def ring_of(nodeid: str, marks: Collection[str]) -> Ring:
    """Return the smallest ring that runs a test.

    Args:
        nodeid: pytest's name of the test, which begins with its path below the root.
        marks: the names of its marks.

    >>> ring_of("tests/unit/jobspec/test_values.py::test_it", set())
    <Ring.CHECK: 'check'>
    >>> ring_of("tests/unit/spark/test_wire.py::test_it", set())
    <Ring.TEST: 'test'>
    """
    if "deep" in marks:
        return Ring.TEST_ALL
    checked = nodeid.startswith(CHECKED) and not nodeid.startswith(NOT_CHECKED) and "long" not in marks
    return Ring.CHECK if checked else Ring.TEST


def runs(ring: Ring, nodeid: str, marks: Collection[str]) -> bool:
    """Return whether the command of a ring runs a test.

    >>> runs(Ring.TEST, "tests/unit/jobspec/test_values.py::test_it", set())
    True
    >>> runs(Ring.TEST_ALL, "tests/unit/jobspec/test_values.py::test_any_text", {PROPERTY})
    True
    """
    smallest = ring_of(nodeid, marks)
    if ring is Ring.TEST_ALL:
        return smallest is Ring.TEST_ALL or PROPERTY in marks
    return smallest is Ring.CHECK or smallest is ring


@dataclass(frozen=True)
class Part:
    """One of `count` shares of the tests; each test is in exactly one.

    Raises: ValueError: not written as `2/6`.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"{text!r} is no part: expected a number of a count, such as 2/6")
        return cls(int(match[1]), int(match[2]))

    def has(self, nodeid: str) -> bool:
        """Return whether a test is in this share. Depends only on the test's file and function, not on other tests."""
        function = nodeid.partition("[")[0]
        return int.from_bytes(hashlib.sha256(function.encode()).digest()[:8]) % self.count == self.number - 1


def marks_of(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ring", type=Ring, choices=list(Ring), default=None, help="run one ring; default: every test")
    parser.addoption("--part", type=Part.parse, default=Part(1, 1), help="of the ring: 2/6 is the second of six shares")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without tests of the ring: importing Airflow alone takes a second per process."""
    ring = config.getoption("--ring")
    if ring not in LEFT_OUT or not collection_path.is_relative_to(config.rootpath):
        return None
    path = f"{collection_path.relative_to(config.rootpath).as_posix()}/"
    above = any(folder.startswith(path) for folder in CHECKED)
    if ring is Ring.CHECK and not above and (not path.startswith(CHECKED) or path.startswith(NOT_CHECKED)):
        return True
    is_test = collection_path.match("test_*.py") and collection_path.is_file()
    return True if is_test and LEFT_OUT[ring].search(collection_path.read_bytes()) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other rings and of other parts. Hypothesis has marked its tests by now."""
    ring, part = config.getoption("--ring"), config.getoption("--part")
    if ring is None:
        return
    chosen = [item for item in items if runs(ring, item.nodeid, marks_of(item)) and part.has(item.nodeid)]
    chosen_ids = {id(item) for item in chosen}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen_ids])
    items[:] = chosen


@dataclass(frozen=True)
class Claim:
    """The claim in the name of a test function. The smallest ring of one of its cases proves it.

    Attributes:
        cases: how many cases of it each ring adds.
    """

    file: str
    sentence: str
    cases: Counter[Ring]

    @property
    def ring(self) -> Ring:
        return next(ring for ring in Ring if self.cases[ring])


def claims_of(tests: Iterable[tuple[str, Ring]]) -> list[Claim]:
    """Join the cases of each test function to one claim.

    Args:
        tests: pytest's name of each test, and its smallest ring.
    """
    cases: defaultdict[tuple[str, str], Counter[Ring]] = defaultdict(Counter)
    for nodeid, ring in tests:
        file, *names = nodeid.partition("[")[0].split("::")
        cases[file, "::".join(names)][ring] += 1
    return [
        Claim(file, name.rpartition("::")[2].removeprefix("test_").replace("_", " "), count)
        for (file, name), count in cases.items()
    ]


def page(claims: Sequence[Claim]) -> str:
    """Count the tests and the claims of each ring as a table, a row for each folder."""
    folders = sorted({_folder(claim) for claim in claims})
    rows = [[f"`{folder}`", *_counts([claim for claim in claims if _folder(claim) == folder])] for folder in folders]
    head = ["folder", *(f"{ring}: tests, claims" for ring in Ring)]
    return table(head, [*rows, ["all", *_counts(claims)]])


def listing(claims: Sequence[Claim]) -> str:
    """List every claim below its file, with its ring and with how many cases each ring adds."""
    lines: list[str] = []
    for number, claim in enumerate(claims):
        if not number or claims[number - 1].file != claim.file:
            lines.append(f"\n{claim.file}")
        cases = ", ".join(f"{ring} +{claim.cases[ring]}" for ring in Ring if claim.cases[ring])
        lines.append(f"  {claim.ring:<8}  {claim.sentence}  ({cases})")
    return "\n".join(lines).lstrip("\n")


def _folder(claim: Claim) -> str:
    return "/".join(Path(claim.file).parent.parts[:3])


def _counts(claims: Sequence[Claim]) -> list[str]:
    tests: Counter[Ring] = Counter()
    for claim in claims:
        tests.update(claim.cases)
    proved = Counter(claim.ring for claim in claims)
    return [f"{tests[ring]:,}, {proved[ring]:,}" for ring in Ring]


class _Collected:
    """Collects the name and the ring of every test that pytest collects."""

    def __init__(self) -> None:
        self.tests: list[tuple[str, Ring]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests = [(item.nodeid, ring_of(item.nodeid, marks_of(item))) for item in session.items]


def main(folders: Sequence[str]) -> int:
    """Collect the tests of these folders, all of them by default, and print what each ring proves."""
    collected = _Collected()
    words = ["--collect-only", "-o", "addopts=--import-mode=importlib", "-p", "no:terminal", "-p", "no:cacheprovider"]
    code = pytest.main([*words, *(folders or ["tests"])], plugins=[collected])
    if code:
        return int(code)
    claims = claims_of(collected.tests)
    print(listing(claims) if folders else page(claims))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("MILEPOST_SEED", "0")
    sys.exit(main(sys.argv[1:]))
