"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.cli.terminal.completion import checkpoint_ids, job_names

Json = Annotated[bool, typer.Option("--json", help="Print one versioned JSON document.")]
"""`main` reads it from the command line, so that it also applies to usage errors."""

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show a stack trace with errors.")]
"""`main` reads it from the command line, like `Json`."""


def _remember(ctx: typer.Context, job: str | None) -> str | None:
    """Remember how the user typed the job, so that suggested commands name it the same way."""
    if ctx.obj is not None:
        ctx.obj.typed = job
    return job


Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="A spec file, or a name under config/.", callback=_remember, autocompletion=job_names
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="ID|TIME",
        help="This checkpoint, or the newest one triggered at or before this time. Default: the head.",
        autocompletion=checkpoint_ids,
    ),
]
