"""State that no operator of the spec restores: likely renames, and what is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from milepost.jobspec.graph import can_continue, with_updates_of


def renamed_operators(
    recorded: Mapping[str, Mapping[str, Any]], current: Mapping[str, Mapping[str, Any]], order: Sequence[str]
) -> dict[str, str]:
    """Guess which operators, or sources, of the checkpoint were renamed in the spec.

    Example: the checkpoint has `totals`, the spec has `daily_totals` and `top10`. Only `daily_totals` has a signature
    that can continue the state of `totals`, so the result is `{"totals": "daily_totals"}`.

    Args:
        recorded, current: signatures by uid. order: the uids of `current`, upstream first.
    Returns:
        The new uid by the former one. Each pair could continue with `renamed_from`. Of several candidates, the one
        with the most similar uid.
    """
    removed = {uid: signature for uid, signature in recorded.items() if uid not in current}
    renames: dict[str, str] = {}
    for uid in (name for name in order if name in current and name not in recorded):
        candidates = [former for former in removed if can_continue(_renamed(removed[former], renames), current[uid])]
        if candidates:
            former = max(candidates, key=lambda name: SequenceMatcher(None, name, uid).ratio())
            renames[former] = uid
            del removed[former]
    return renames


def _renamed(signature: Mapping[str, Any], renames: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a signature in which the operators that it reads have their new uids."""
    for former, uid in renames.items():
        signature = with_updates_of(signature, former, uid)
    return signature
