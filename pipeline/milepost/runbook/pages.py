"""Runbook pages, stored as Markdown in the package, for the command and the plugin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from milepost.errors import NotFound

_HERE = Path(__file__).resolve().parent
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class RunbookPage:
    """A page. Attributes: title: of an error its class, of a state a sentence. text: Markdown below the title."""

    name: str
    title: str
    text: str


def page_files() -> dict[str, Path]:
    """Return the file of each page by its name: those of errors, then those of states."""
    return {file.stem: file for folder in ("errors", "states") for file in sorted((_HERE / folder).glob("*.md"))}


def read_page(name: str) -> RunbookPage:
    """Return a page, with the links that lead to pages of the runbook alone; others are a path in the repository.

    Raises: NotFound: there is none of this name.
    """
    file = page_files().get(name)
    if file is None:
        raise NotFound(f"the runbook has no page {name!r}.", hint="milepost runbook lists them")
    heading, _, text = file.read_text(encoding="utf-8").partition("\n")
    return RunbookPage(name, heading.removeprefix("# "), _LINK.sub(_as_carried, text).strip())


def _as_carried(link: re.Match[str]) -> str:
    """Return a link to another page of the runbook by its name; one that leads out of the package as words and path."""
    target = PurePosixPath(link[2])
    carried = target.parent.name in ("errors", "states", "") and target.stem in page_files()
    return f"[{link[1]}]({target.stem})" if carried else f"{link[1]} ({link[2].replace('../', '')})"
