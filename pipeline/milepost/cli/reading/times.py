"""Print an epoch's times and requests by phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milepost.cli.terminal.output import Output, show_bytes

if TYPE_CHECKING:
    from milepost.jobmaster import StoreRequests

_BAR = 30


def show_phases(phases: Mapping[str, int | None], output: Output) -> None:
    """Print the phases that were measured, in their order, the total last, each with its share as a bar.

    An epoch of a replay has no total, so its phases have no share.
    """
    total_ms = phases["total_ms"]
    measured = {name.removesuffix("_ms"): spent for name, spent in phases.items() if spent is not None}
    if not total_ms:
        return output.table(["phase", "ms"], list(measured.items()))
    rows = [[name, spent, round(100 * spent / total_ms, 1), _bar(spent, total_ms)] for name, spent in measured.items()]
    return output.table(["phase", "ms", "%", ""], rows)


def _bar(part: int, total: int) -> str:
    return "█" * round(_BAR * part / total)


def show_requests(requests: Mapping[str, StoreRequests], output: Output) -> None:
    """Print the requests of each phase that has any, by billing class, and their sum."""
    made = {phase: one for phase, one in requests.items() if one.total}
    first, *others = made.values()
    made["total"] = sum(others, first)
    output.table(
        ["phase", "put, list", "get, head", "delete", "sent", "received"],
        [
            [phase, one.puts, one.gets, one.deletes, show_bytes(one.sent_bytes), show_bytes(one.received_bytes)]
            for phase, one in made.items()
        ],
        figures=("sent", "received"),
    )
