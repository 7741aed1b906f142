"""What a message tells its reader to type exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import milepost
from milepost.cli.main import UNAVAILABLE

_UNAVAILABLE = re.compile(rf"milepost (?:{'|'.join(UNAVAILABLE)})\b")


def test_no_text_names_a_command_that_this_version_does_not_have() -> None:
    """A remedy that answers `is not available in this version` is none."""
    folder = Path(next(iter(milepost.__path__)))
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 100
    named = [
        f"{file.relative_to(folder)}:{node.lineno}: {node.value!r}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _UNAVAILABLE.search(node.value)
    ]
    assert named == []


def test_the_search_finds_such_a_text() -> None:
    assert _UNAVAILABLE.search("look at it, then: milepost test JOB")
    assert not _UNAVAILABLE.search("milepost run JOB, milepost tests")
