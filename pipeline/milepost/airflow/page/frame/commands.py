"""Detect shell commands in hints; pages fold them, because Airflow's UI has no shell."""

from __future__ import annotations

_COMMAND_PARTS = ("milepost ", "--")
"""Substrings of a text that contains a command or one of its options."""


def names_command(text: str | None) -> bool:
    """Return whether a hint contains a shell command."""
    return text is not None and any(part in text for part in _COMMAND_PARTS)
