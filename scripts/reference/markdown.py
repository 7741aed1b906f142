"""Pieces of Markdown that the generated pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def note(origin: str) -> str:
    """Return the line that names the origin of a page."""
    return f"<!-- Made by `make reference`, not by hand. -->\n\n*From {origin}.*\n"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table. Bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: object) -> str:
    return plain(str(text)).replace("|", "\\|")


def plain(text: str) -> str:
    """Return a text in which `<` outside of code is escaped."""
    parts = text.split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def with_section(document: str, begin: str, section: str, end: str) -> str:
    """Return a page with the section between two markers replaced. Raises ValueError: it has no such section."""
    before, begun, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the page has no section between {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{section}\n{end}{after}"
