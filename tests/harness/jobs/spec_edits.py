"""Edits of specs: what is replaced must be there."""

from __future__ import annotations

from collections.abc import Mapping


def edited(text: str, edits: Mapping[str, str]) -> str:
    """Return a spec in which texts are replaced, one after another; each must occur."""
    for old, new in edits.items():
        assert old in text, f"the spec does not contain {old!r}"
        text = text.replace(old, new)
    return text
