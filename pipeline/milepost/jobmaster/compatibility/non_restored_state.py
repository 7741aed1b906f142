"""State that no operator of the spec restores: its likely new operator, and what the job forgets without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from milepost.jobspec.graph.compatibility import can_continue, with_updates_of

LOST_STATE = {
    "aggregate": "the totals so far: they begin at nothing",
    "window": "the rows of windows that have not fired: those windows will miss them",
    "deduplicate": "which rows were seen: duplicates will count",
    "latest": "the latest row of each key: an older row that comes later will count",
    "top": "the rows that rank now: only later ones will",
    "join": "the rows that wait for their partners: their pairs will be missing",
    "asof": "the rows to pair with: later ones will find no partner among them",
    "process": "what its function keeps for each key",
}
"""What `--allow-non-restored-state` forgets with the state of an operator, by its kind."""

SOURCE_POSITION_KEPT = "its position is kept, so that nothing is read twice if it comes back"


def renamed_operators(
    recorded: Mapping[str, Mapping[str, Any]], current: Mapping[str, Mapping[str, Any]], order: Sequence[str]
) -> dict[str, str]:
    """Guess which operators of the spec are those of the checkpoint under another uid.

    Args:
        recorded, current: signatures by uid. order: the uids of `current`, upstream first.
    Returns:
        The new uid by the former one, of operators whose state would go on with `renamed_from`. Of several that could
        be, the one with the most similar uid.
    """
    removed = {uid: signature for uid, signature in recorded.items() if uid not in current}
    found: dict[str, str] = {}
    for uid in (one for one in order if one in current and one not in recorded):
        fits = [former for former in removed if can_continue(_with_names(removed[former], found), current[uid])]
        if fits:
            former = max(fits, key=lambda name: SequenceMatcher(None, name, uid).ratio())
            found[former] = uid
            del removed[former]
    return found


def _with_names(signature: Mapping[str, Any], renames: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a signature as it is once the operators that it reads have their new uids."""
    for former, uid in renames.items():
        signature = with_updates_of(signature, former, uid)
    return signature
