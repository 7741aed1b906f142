"""Show a plan and ask for confirmation before it is carried out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from milepost.cli.terminal.output import Output
from milepost.errors import InvalidRequest

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]


def confirmed(question: str, yes: bool, output: Output) -> bool:
    """Ask on the terminal for confirmation. Without a terminal, or with `--json`, `--yes` is required.

    Raises:
        InvalidRequest: there is no terminal and `--yes` is not given.
    """
    if yes:
        return True
    if output.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest(
            f"{question} There is no terminal to ask on. Nothing was changed.", hint="add --yes to continue"
        )
    return typer.confirm(question, err=True)


def agreed(
    text: Sequence[str],
    question: str,
    output: Output,
    document: object,
    *,
    dry_run: bool,
    yes: bool,
    idle: bool = False,
) -> bool:
    """Show a plan, and return whether to carry it out. If not, report that nothing was changed.

    Args:
        question: shown to the user, unless `--yes` is given.
        document: the plan as `--dry-run --json` prints it.
        idle: whether the plan has nothing to do. Then it needs no confirmation.
    Raises: InvalidRequest: there is no terminal, and no `--yes`.
    """
    if dry_run or idle or not yes:
        for line in text:
            output.text(line)
    if dry_run:
        if output.json:
            output.document(document)
        output.text("nothing was changed")
        return False
    if idle or confirmed(question, yes, output):
        return True
    output.note("nothing was changed")
    return False
