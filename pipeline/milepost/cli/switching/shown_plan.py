"""Show a plan and ask for confirmation before it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from milepost.cli.running.control import confirmed
from milepost.cli.terminal.output import Output


class Plan(Protocol):
    """What a command would do."""

    @property
    def text(self) -> Sequence[str]:
        """The plan as lines of text."""


def agreed(plan: Plan, question: str, output: Output, *, dry_run: bool, yes: bool, idle: bool = False) -> bool:
    """Show a plan, and return whether to carry it out. If not, report that nothing was changed.

    Args:
        question: shown to the user, unless `--yes` is given.
        idle: whether the plan has nothing to do. Then it needs no confirmation.
    Raises: InvalidRequest: there is no terminal, and no `--yes`.
    """
    if dry_run or idle or not yes:
        for line in plan.text:
            output.text(line)
    if dry_run:
        if output.json:
            output.document(plan)
        output.text("nothing was changed")
        return False
    if idle or confirmed(question, yes, output):
        return True
    output.note("nothing was changed")
    return False
