"""Disks of a machine that do not take, or give back, what they are asked to: told in one way, whoever asked."""

from __future__ import annotations

from milepost.protocol.records.errors import EnvironmentUnusable


def unusable_disk_error(
    folder: str, what: str, error: OSError, *, elsewhere: str, now_true: str, who: str = ""
) -> EnvironmentUnusable:
    """Return what to raise for a folder that is of no use: its disk is full, or does not work.

    Args:
        what: it cannot do, as "take an object". elsewhere: how to choose another folder, as "set TMPDIR to a folder on
            another disk". now_true: a sentence. who: whose it is, and a colon.
    """
    return EnvironmentUnusable(
        f"{who}{folder} cannot {what} ({error}). {now_true}",
        hint=f"Free space there, or {elsewhere}.",
        directory=folder,
    )
