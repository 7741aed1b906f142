"""Edits of specs: what is replaced must be there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def edited(text: str, edits: Mapping[str, str]) -> str:
    """Return a spec in which texts are replaced, one after another; each must occur."""
    for old, new in edits.items():
        assert old in text, f"the spec does not contain {old!r}"
        text = text.replace(old, new)
    return text


def edit_spec(path: Path, edits: Mapping[str, str]) -> None:
    """Replace texts in a spec's file; each must occur."""
    path.write_text(edited(path.read_text(), edits))
