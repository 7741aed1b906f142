"""Text of the parts of a page, as a reader sees it, for golden wording."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser

FIGURES = {
    r"(?<![\d-])\d\d-\d\d \d\d:\d\d:\d\d\b": "{time}",
    r"(?<![\w.])(?:\d[\d,.]* (?:ms|s|min|h|d)\b ?)+(?<! )": "{duration}",
    r"(?<![\w.])\d[\d,.]* [kMGT]?B\b": "{size}",
}
"""For `wording.matches(replace=...)`: the durations and sizes that differ between runs."""

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
_INLINE = frozenset({"a", "b", "br", "code", "em", "span", "strong", "svg", "time"})
_APART = frozenset({"a", "span", "strong"})
_CELLS = frozenset({"td", "th"})
_UNSEEN = frozenset({"script", "style", "svg"})


def page_text(page: str, *selectors: str) -> str:
    """Return the text of the outermost elements that one of the selectors matches, in the order of the page.

    A block is a line, and so is a row of a table, with bars between its cells.

    Args:
        selectors: `tag`, `.class`, `tag.class` or `#id`. Text inside a drawing needs a selector of its own.
    """
    reader = _Reader(selectors)
    reader.feed(page)
    reader.close()
    lines = ("".join(reader.parts)).split("\f")
    lines = [re.sub(r"(?<=\|) \|", "", re.sub(r"\s+", " ", line)).strip(" |") for line in lines]
    return "\n".join(line for line in lines if line)


class _Reader(HTMLParser):
    def __init__(self, selectors: Sequence[str]) -> None:
        super().__init__()
        self.selectors = selectors
        self.parts: list[str] = []
        self.open: list[str] = []
        self.selected = 0
        """How many elements were open where the selected one began; 0 outside of any."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self.selected and any(selector in _names(tag, dict(attrs)) for selector in self.selectors):
            self.selected = len(self.open) + 1
            self.parts.append("\f")
        self._separate(tag, begins=tag in _APART)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Ignore self-closing tags: the shapes of drawings, which contain no text."""

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.open:
            return
        while self.open.pop() != tag:
            pass
        self._separate(tag)
        if len(self.open) < self.selected:
            self.selected = 0

    def handle_data(self, data: str) -> None:
        if self.selected and not _UNSEEN & {*self.open[self.selected :]}:
            self.parts.append(data)

    def _separate(self, tag: str, begins: bool = False) -> None:
        """End a line at the edge of a block, but not within the row of a table."""
        if self.selected and tag in _CELLS:
            self.parts.append(" | ")
        elif self.selected and tag not in _INLINE:
            self.parts.append(" " if _CELLS & {*self.open[self.selected :]} else "\f")
        elif (self.selected and begins) or tag == "br":
            self.parts.append(" ")


def _names(tag: str, attributes: dict[str, str | None]) -> Iterator[str]:
    yield tag
    yield f"#{attributes.get('id')}"
    for name in (attributes.get("class") or "").split():
        yield f".{name}"
        yield f"{tag}.{name}"
