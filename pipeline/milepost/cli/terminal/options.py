"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.cli.terminal.completion import checkpoint_ids, job_names

Json = Annotated[bool, typer.Option("--json", help="Print one versioned JSON document.")]
"""Read from the command line by `main`, so that usage errors obey it as well."""

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show a stack trace with errors.")]
"""Read from the command line by `main`, as Json."""


def _remember(ctx: typer.Context, job: str | None) -> str | None:
    """Keep how the user names the job: commands that are shown to be typed name it so, too."""
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
        help="As of this checkpoint, or the newest one triggered by then; default: the head.",
        autocompletion=checkpoint_ids,
    ),
]
