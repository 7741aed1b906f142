"""Golden wording: what fails, what an update rewrites, and what it deletes."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from milepost_testkit import wording
from milepost_testkit.processes.processes import REPOSITORY

TESTS = """
import pytest
from milepost_testkit import wording

class Refused(Exception):
    hint = "do it otherwise"

@pytest.mark.parametrize("column", ["city", "name"])
def test_columns(column):
    with wording.raises(Refused):
        raise Refused(f"no column {column}")

def test_two(tmp_path):
    for where in (tmp_path, "there"):
        wording.matches("load", f"loads from\\n\\n  {where}  \\nin full")

def test_same():
    with wording.raises(Refused):
        raise Refused("no column city")
"""

ERRORS = """\
# Rewritten by `make wording`: review the diff.

test_a.py::test_columns[city]
test_a.py::test_same
    no column city
    hint: do it otherwise

test_a.py::test_columns[name]
    no column name
    hint: do it otherwise
"""

OUTPUTS = """\
# Rewritten by `make wording`: review the diff.

test_a.py::test_two
    loads from

      {tmp}
    in full

test_a.py::test_two # 2
    loads from

      there
    in full
"""


class Suite:
    """A suite of one file, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "tests" / "test_a.py"
        self.golden = folder / wording.FOLDER
        self.file.parent.mkdir()
        self.file.write_text(TESTS, encoding="utf-8")
        (folder / "pytest.ini").touch()

    def run(self, *arguments: str, passes: bool = True) -> str:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "milepost_testkit.wording",
            "-p",
            "no:cacheprovider",
            *arguments,
        ]
        environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is passes, done.stdout + done.stderr
        return done.stdout

    def texts(self) -> list[str]:
        return [path.read_text(encoding="utf-8") for path in sorted(self.golden.iterdir())]


@pytest.mark.long
def test_an_update_writes_what_later_runs_compare_also_those_of_one_test(tmp_path: Path) -> None:
    suite = Suite(tmp_path)
    assert "1 failed" not in suite.run("--update-wording", "-p", "xdist", "-n", "2")
    assert suite.texts() == [ERRORS, OUTPUTS]
    assert "no test uses" not in suite.run("tests/test_a.py::test_same")
    suite.file.write_text(TESTS.replace("no column", "unknown column"), encoding="utf-8")
    shown = suite.run("tests", "-p", "xdist", "-n", "2", passes=False)
    assert "- no column name\n+ unknown column name\n  hint: do it otherwise\n" in shown
    assert 'make wording ARGS="tests/test_a.py"' in shown and "3 failed, 1 passed" in shown
    suite.run("--update-wording", "-k", "columns")
    assert suite.texts()[0].count("unknown column") == 2 and suite.texts()[1] == OUTPUTS, "what did not run stays"


@pytest.mark.parametrize("processes", ["0", pytest.param("2", marks=pytest.mark.long)])
def test_an_entry_that_no_test_uses_fails_the_run_until_an_update_deletes_it(tmp_path: Path, processes: str) -> None:
    suite = Suite(tmp_path)
    suite.golden.mkdir()
    (suite.golden / "Refused.txt").write_text(
        ERRORS.replace(
            "[name]", "[name]\ntest_a.py::test_columns[gone]\ntest_b.py::test_gone\ntest_a.py::test_same # 2"
        ),
        encoding="utf-8",
    )
    (suite.golden / "load.txt").write_text(OUTPUTS, encoding="utf-8")
    spread = ("-p", "xdist", "-n", processes)
    shown = suite.run(*spread, passes=False).splitlines()
    assert [line.partition("txt: ")[2] for line in shown if line.startswith(wording.FOLDER)] == [
        "test_a.py::test_columns[gone]",
        "test_a.py::test_same # 2",
        "test_b.py::test_gone",
    ]
    suite.run(*spread, "--update-wording")
    assert suite.texts() == [ERRORS, OUTPUTS]


def test_what_differs_between_runs_has_a_placeholder(tmp_path: Path) -> None:
    now = datetime.now(UTC).isoformat()
    text = f"file://{tmp_path}/orders at {now}, http://127.0.0.1:8080, {'0a' * 16}; 2026-01-02T03:04:05Z, try 7 "
    assert wording.stable(text, {r"try \d+": "try {n}"}) == (
        "file://{tmp}/orders at {time}, http://127.0.0.1:{port}, {hex}; 2026-01-02T03:04:05Z, try {n}"
    )


def test_sizes_and_leases_have_a_placeholder_too() -> None:
    text = "holds its lease for another 599 s; 18 objects, 23,797 bytes"
    assert wording.stable(text, wording.SIZES) == "holds its lease for another {time} s; 18 objects, {size} bytes"


def test_a_file_is_read_as_it_is_written() -> None:
    entries = {"a.py::test_a": "", "a.py::test_b": "  an indent\n\nand # no header", "a.py::test_c": ""}
    assert wording.parse(wording.render(entries)) == entries


def test_an_error_of_another_class_has_no_entry_in_this_one() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"KeyError\.txt: unit/testkit/test_wording\.py::test_an_err"):
        with wording.raises(LookupError):
            raise KeyError("city")
    wording._PLUGIN.compared.clear()
