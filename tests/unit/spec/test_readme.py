"""What the README shows is true: its spec lints, and the commands it names exist."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from milepost.cli.main import app
from milepost.spec.load.load import from_text
from tests.harness.servers.processes import REPOSITORY

README = REPOSITORY / "README.md"


def test_the_spec_of_the_readme_is_valid() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    job = from_text(text, README.parent / "config" / "readme.yaml")
    assert job.graph().levels == 1 and len(text.splitlines()) <= 10


def test_every_command_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"`?milepost ([a-z]+) ", README.read_text()))
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert named and all(re.search(rf"^\s+{command}\s", listed, re.MULTILINE) for command in named)
