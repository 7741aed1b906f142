"""What the README shows is true: its spec lints, and the commands it names exist."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from milepost.cli.main import app
from milepost.spec.load.load import from_text
from scripts.transcripts import BLOCKS, blocks_of, typed
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


def test_the_transcripts_of_the_readme_are_those_of_the_command_that_makes_them() -> None:
    """Each block shows the commands that `make transcripts` runs, in their order, and what each printed."""
    blocks = blocks_of(README.read_text())
    assert blocks.keys() == BLOCKS.keys()
    for name, commands in BLOCKS.items():
        shown = [typed(line) for line in blocks[name] if line.startswith("$ ")]
        place = r"s3://milepost/flights/savepoints/middle/[0-9a-f]{32}"
        assert len(shown) == len(commands)
        for line, command in zip(shown, commands, strict=True):
            assert re.fullmatch(re.escape(command.text).replace(re.escape("{place}"), place), line)
