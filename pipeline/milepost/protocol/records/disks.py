"""Error for a local disk that is full or does not work, formatted the same for every caller."""

from __future__ import annotations

from milepost.errors import EnvironmentUnusable


def unusable_disk_error(
    folder: str, verb_phrase: str, error: OSError, *, alternative: str, now_true: str, prefix: str = ""
) -> EnvironmentUnusable:
    """Return the error to raise for a folder that cannot be used.

    Args:
        verb_phrase: what the folder cannot do, such as "take an object".
        alternative: how to choose another folder, such as "set TMPDIR to a folder on another disk".
        now_true: a sentence about the state of things now.
        prefix: names the owner of the folder, with a colon and a space.
    """
    return EnvironmentUnusable(
        f"{prefix}{folder} cannot {verb_phrase} ({error}). {now_true}",
        hint=f"Free space there, or {alternative}.",
        directory=folder,
    )
