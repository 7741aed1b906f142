"""The command `runbook`, which prints a page of the runbook."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from milepost.cli.terminal.options import Json, Verbose
from milepost.cli.terminal.output import Output

_LINK = re.compile(r"\[([^\]]+)\]\(([a-z-]+)\)")


def _names() -> list[str]:
    from milepost.runbook import page_files

    return list(page_files())


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(runbook)


def runbook(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Name of a page, as in an error or in `status`. Default: list all pages.",
            autocompletion=_names,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print what an error or a condition of a job means, and what to do."""
    from milepost.runbook import address, page_files, read_page

    output: Output = ctx.obj
    if name is None:
        found = [read_page(one) for one in page_files()]
        if output.json:
            pages = [{"name": one.name, "title": one.title, "address": address(one.name)} for one in found]
            return output.document({"pages": pages})
        return output.table(["page", "about"], [[one.name, one.title] for one in found])
    page = read_page(name)
    if output.json:
        document = {"name": page.name, "title": page.title, "address": address(page.name), "text": page.text}
        return output.document(document)
    output.text(f"# {page.title}")
    output.text()
    return output.text(_LINK.sub(r"\1 (milepost runbook \2)", page.text))
