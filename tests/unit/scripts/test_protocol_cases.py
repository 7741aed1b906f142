"""The list of cases is true: what it cites exists, and nothing is both proven and declared impossible."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit import wording
from scripts.protocol_cases import (
    Case,
    Report,
    main,
    read_report,
    render_markdown,
    render_text,
)
from scripts.reference.markdown import with_section

CASES = "ATest\ttestOne\nATest\ttestTwo\nBTest\ttestThree\n"


def suite(folder: Path, tests: str = "", not_applicable: str = "", cases: str = CASES) -> Report:
    (folder / "not_applicable").mkdir()
    (folder / "cases.tsv").write_text(cases)
    (folder / "test_it.py").write_text(tests)
    (folder / "not_applicable" / "it.tsv").write_text(not_applicable)
    return read_report(folder)


def test_no_case_is_missing_and_the_document_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Every citation names a known case, none is both covered and not applicable, and the README is up to date.

    After a change of a citation or a reason: `python -m scripts.protocol_cases --update`.
    """
    report = read_report()
    assert len(report.cases) == 465
    assert (report.inconsistencies(), report.missing()) == ([], [])
    assert main([]) == 0, capsys.readouterr().out


def test_a_case_is_covered_by_the_test_that_cites_it(tmp_path: Path) -> None:
    cases = "    Case: ATest.testOne\n    Case: BTest.\n        testThree\n"
    code = f'def test_x() -> None:\n    """It holds.\n\n{cases}    """\n'
    report = suite(tmp_path, code, "ATest\ttestTwo\tthere is no such thing here\n")
    assert report.tests == {
        Case("ATest", "testOne"): ("test_it.py::test_x",),
        Case("BTest", "testThree"): ("test_it.py::test_x",),
    }
    assert (report.inconsistencies(), report.missing()) == ([], [])
    assert [report.counts("ATest"), report.counts("BTest"), report.counts()] == [(1, 1, 0), (1, 0, 0), (2, 1, 0)]
    assert "| ATest.testTwo | there is no such thing here |" in render_markdown(report)


def test_unproven_cases_are_missing(tmp_path: Path) -> None:
    report = suite(tmp_path)
    assert report.missing() == list(report.cases)
    assert render_text(report, []).endswith("missing: ATest.testOne\nmissing: ATest.testTwo\nmissing: BTest.testThree")


def test_an_unknown_case_and_one_that_is_both_are_wrong(tmp_path: Path) -> None:
    code = 'def test_x() -> None:\n    """Case: ATest.testOne\n    Case: ATest.testNone\n    """\n'
    report = suite(tmp_path, code, "ATest\ttestOne\tno\nCTest\ttestFour\tno\n")
    assert report.inconsistencies() == [
        "unknown case ATest.testNone: test_it.py::test_x",
        "unknown case CTest.testFour: not_applicable/",
        "ATest.testOne is declared not applicable and covered: test_it.py::test_x",
    ]


def test_only_a_test_can_cover_a_case(tmp_path: Path) -> None:
    code = '"""Case: ATest.testOne"""\ndef helper() -> None:\n    """Case: ATest.testTwo"""\n'
    report = suite(tmp_path, code)
    assert report.tests == {}
    assert [line.partition(":")[0] for line in report.faults] == ["test_it.py", "test_it.py"]


def test_a_line_that_cannot_be_read_is_wrong(tmp_path: Path) -> None:
    code = 'def test_x() -> None:\n    """Case: ATest.testOne and ATest.testTwo"""\n'
    report = suite(tmp_path, code, "ATest\ttestOne\nATest\ttestTwo\tno\nATest\ttestTwo\tno\n", CASES + CASES)
    assert len(report.inconsistencies()) == 6
    assert report.tests == {}


def test_the_command_prints_the_table_or_the_section(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert capsys.readouterr().out.startswith("class ")
    main(["--markdown"])
    assert capsys.readouterr().out.startswith("| class | cases | covered | not applicable |")


def test_the_section_is_replaced_between_its_markers_only() -> None:
    begin, end = "<!-- cases -->\n", "<!-- end -->\n"
    document = f"# The protocol\n{begin}old\n{end}## Next\n{end}"
    assert with_section(document, begin, "new", end) == f"# The protocol\n{begin}new\n{end}## Next\n{end}"
    with wording.raises(ValueError):
        with_section("# The protocol\n", begin, "new", end)
