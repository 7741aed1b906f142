"""A plan is shown, and a person agrees to it, before it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from milepost.cli.running.control import confirmed
from milepost.cli.terminal.output import Output


class Plan(Protocol):
    """What a command would do."""

    @property
    def text(self) -> Sequence[str]:
        """It in words, line by line."""


def agreed(plan: Plan, question: str, output: Output, *, dry_run: bool, yes: bool, idle: bool = False) -> bool:
    """Show a plan, and return whether to carry it out; where not, it is said that nothing was changed.

    Args:
        question: asked of a person, unless `--yes` answers it. idle: there is nothing to ask about; it is carried out.
    Raises: InvalidRequest: nobody can be asked.
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
