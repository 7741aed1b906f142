"""What the README and the first page say is true: spec, commands, versions, numbers; and it is read in minutes."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from milepost import FIRST_PYTHON, LAST_PYTHON
from milepost.cli.main import app
from milepost.jobspec.load.load import from_text
from milepost.jobspec.load.sql_text import SqlText
from milepost_testkit.processes.processes import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
INDEX = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
GLANCE = (REPOSITORY / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOST_WORDS = 900


@dataclass(frozen=True)
class Target:
    """A row of the benchmark's targets. Attributes: wanted, median: as they are written, without sign and unit."""

    wanted: str
    median: str
    met: bool

    @property
    def cell(self) -> str:
        return f"{self.median} ×" if self.met else f"{self.median} × (target {self.wanted}, missed)"


def targets() -> dict[str, Target]:
    results = (REPOSITORY / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    section = results.partition("## Targets")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    return {
        what: Target(_number(wanted), _number(median), not verdict.startswith("**missed"))
        for what, wanted, median, _, verdict in rows
        if what not in ("what", "---")
    }


def _number(cell: str) -> str:
    return re.sub(r"[^\d.]", "", cell)


def section(heading: str) -> str:
    return README.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_the_readme_is_read_in_minutes() -> None:
    assert len(README.split()) < MOST_WORDS


def test_the_spec_of_the_first_page_is_valid() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", INDEX, re.DOTALL)
    (sql,) = re.findall(r"```sql\n(.*?)```", INDEX, re.DOTALL)
    job = from_text(text, REPOSITORY / "config" / "index.yaml", SqlText.of("flights.sql", sql))
    assert job.graph().levels == 1 and max(map(len, text.splitlines())) <= 90


@pytest.mark.parametrize("text", [README, INDEX, GLANCE], ids=["readme", "index", "glance"])
def test_every_command_that_is_named_exists(text: str) -> None:
    named = set(re.findall(r"\bmilepost ([a-z]+(?:-[a-z]+)*)[ `]", text)) - {"doctor"}
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert named and [one for one in named if not re.search(rf"^\s+{one}\s", listed, re.MULTILINE)] == []


def test_every_command_is_at_a_glance() -> None:
    commands = [name for name, command in vars(typer.main.get_command(app))["commands"].items() if not command.hidden]
    assert len(commands) > 20 and [one for one in commands if f"milepost {one}" not in GLANCE] == []


def test_the_readme_names_the_versions_of_the_project_file() -> None:
    said = section("Versions and limits")
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    ranges = {text for texts in (PROJECT["dependencies"], *extras.values()) for text in texts}
    named = set(re.findall(r"`([a-z-]+(?:\[\w+\])?[<>]=[^`]+)`", said))
    assert {re.split(r"[<>\[]", one)[0] for one in named} == {"apache-airflow", "pyspark", "pyarrow"}
    assert named <= ranges
    lowest, highest = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert f"Python 3.{lowest} to 3.{int(highest) - 1}" in said
    assert ((3, int(lowest)), (3, int(highest) - 1)) == (FIRST_PYTHON, LAST_PYTHON)


def test_the_extras_of_the_quickstart_are_there() -> None:
    (wanted,) = re.findall(r'pip install "/path/to/clone\[([\w,]+)\]"', README)
    assert set(wanted.split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_numbers_of_the_readme_are_those_of_the_benchmark() -> None:
    measured, said = targets(), section("Numbers")
    streaming, flink = "Structured Streaming's better store", "PyFlink SQL's better backend"
    for keys in ("10 k keys", "1 M keys", "5 M keys"):
        row = f"| {keys} | {measured[f'{keys}: {streaming}'].cell} | {measured[f'{keys}: {flink}'].cell} |"
        assert row in said
    cold = measured["new process, 1 M keys: availableNow, both with a cold JVM"].cell
    assert f"| new process per epoch, 1 M keys | {cold} | not measured |" in said
    text = " ".join(said.split())
    missed = sum(not target.met for target in measured.values())
    assert f"{missed} of {len(measured)} targets are missed" in text
    limit = "{}: ours against the bare limit"
    assert f"{measured[limit.format('10 k keys')].median} times as fast as ours with 10 k keys" in text
    assert f"{measured[limit.format('1 M keys')].median} times with 1 M" in text
    assert f"takes {measured['restore of 5 M keys without cache, against pyarrow'].median} times as long" in text
