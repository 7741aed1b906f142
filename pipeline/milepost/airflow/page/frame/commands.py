"""Commands of the shell in what people are told: inside Airflow there is no shell, so pages fold them."""

from __future__ import annotations

_OURS = ("milepost ", "--")
"""What a text has that names a command, or an option of one."""


def names_command(text: str | None) -> bool:
    """Return whether a hint is for somebody who has a shell."""
    return text is not None and any(part in text for part in _OURS)
