"""What the pages show and no page runs is true as well: lines to install, commands in a sentence, parts of specs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from milepost.cli.main import app
from milepost.cli.workspace.scaffold import write_job
from milepost.extras import EXTRAS
from milepost.jobspec.load.document import read_document
from milepost.jobspec.load.validation import validate_spec
from milepost_testkit.processes.processes import REPOSITORY
from scripts.transcripts import blocks

PAGES = [page for folder in ("tutorial", "how-to") for page in sorted((REPOSITORY / "docs" / folder).glob("*.md"))]
PAGES_BY_NAME = [pytest.param(page, id=page.name) for page in PAGES]
INSTALLING = re.compile(
    r'pip install "(?:milepost|/path/to/clone)\[([a-z0-9,]+)\]"|python3 -m venv ~/\w+|source ~/\w+/bin/activate'
)
"""What `tests/integration/installed` does, with the wheel in place of a clone or of a name in an index."""

SECRET = re.compile(r"export AIRFLOW_CONN_[A-Z_]+='[^']+'")
"""A setting whose values are the reader's own."""

CLI = typer.main.get_command(app)


@pytest.mark.parametrize("page", PAGES_BY_NAME)
def test_only_lines_to_install_and_secrets_are_shown_and_not_run(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        for line in block.body.splitlines() if block.language == "sh" else ():
            if SECRET.fullmatch(line):
                continue
            installing = INSTALLING.fullmatch(line)
            assert installing is not None, line
            assert set((installing[1] or "spark").split(",")) <= EXTRAS.keys()


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES_BY_NAME)
def test_every_command_in_a_sentence_exists_with_its_options(page: Path) -> None:
    for text in re.findall(r"`milepost ([^`]+)`", page.read_text("utf-8")):
        words = text.split()
        command: Any = CLI
        while isinstance(command, TyperGroup):
            assert words[:1] and words[0] in command.commands, text
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, text


@pytest.mark.deep
@pytest.mark.parametrize("page", PAGES_BY_NAME)
def test_every_part_of_a_spec_is_valid_where_it_belongs(page: Path, tmp_path: Path) -> None:
    write_job("visits", tmp_path, gated=True, opened=True)
    whole = read_document((tmp_path / "config" / "visits.yaml").read_text("utf-8")).value
    shown = page.read_text("utf-8")
    parts = [block.body for block in blocks(shown) if block.language == "yaml" and not block.title]
    parts += re.findall(r"`([a-z]+: \{[^`]+\})`", shown)
    for part in parts:
        _, problems = validate_spec(merged(whole, read_document(part).value))
        assert not problems, (part, problems)


def merged(whole: Any, part: Any) -> Any:
    """A document with a part over it."""
    if not isinstance(whole, dict) or not isinstance(part, dict):
        return part
    return whole | {key: merged(whole.get(key), value) for key, value in part.items()}
