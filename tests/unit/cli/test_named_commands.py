"""What a message tells its reader to type exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from typer.main import get_command

import milepost
from milepost.cli.main import app

_NAMED = re.compile(r"(?:`|: |^|or |, )milepost ([a-z][a-z-]+)\b(?! is | hash)")


@pytest.mark.deep
def test_every_command_that_a_text_names_is_there() -> None:
    """A remedy that answers `there is no command` is none."""
    folder = Path(next(iter(milepost.__path__)))
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 100
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    named = {
        (name, f"{file.relative_to(folder)}:{node.lineno}")
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in _NAMED.findall(node.value)
    }
    assert len(named) > 50
    assert {(name, where) for name, where in named if name not in commands} == set()


def test_the_search_finds_such_a_text() -> None:
    assert _NAMED.findall("look at it, then: milepost tset JOB") == ["tset"]
    assert _NAMED.findall("the package milepost is not installed") == []
