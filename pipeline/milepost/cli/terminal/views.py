"""Print a document to the terminal."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from milepost.cli.terminal.output import Output
from milepost.views import printable

if TYPE_CHECKING:
    from milepost.views import Fold, Section, Table, Text, View

_GAP = 2
_BAR = 30


def show_view(view: View, output: Output, folds: Collection[Fold] = ()) -> None:
    """Print a document. folds: which folded parts to print."""
    output.text(f"{view.title}: {', '.join(output.style(word.text, word.meaning) for word in view.states)}")
    for number, section in enumerate(view.sections):
        if section.fold is None or section.fold in folds:
            if number:
                output.text()
            _show_section(section, output, folds)


def _show_section(section: Section, output: Output, folds: Collection[Fold]) -> None:
    if section.title:
        title = f"{section.title}: {section.about}" if section.about else section.title
        output.paragraph(title, "", "", section.meaning)
    names = max((len(fact.label) for fact in section.facts), default=0) + _GAP
    for fact in section.facts:
        text = f"{plain(fact.value)}, {fact.note}" if fact.note else plain(fact.value)
        output.paragraph(text, " " * (names + _GAP), f"  {fact.label.ljust(names)}")
    for line in section.lines:
        output.paragraph(line, "    ", "  ")
    for table in section.tables:
        _show_table(table, output)
        for fold in (fold for row in table.rows for fold in row.folds if fold.fold in folds):
            output.text()
            _show_table(fold, output)
    for line in section.source.splitlines():
        output.text(printable(line))


def _show_table(table: Table, output: Output) -> None:
    if table.title:
        output.paragraph(table.title, "    ", "  ")
    if table.columns:
        output.table(
            table.columns,
            [[plain(cell) for cell in row.cells] for row in table.rows],
            optional=table.optional,
            notes=[row.note for row in table.rows],
            figures=[name for name, right in zip(table.columns, table.right, strict=True) if right],
        )


def plain(value: str | Text) -> str:
    """Return the text of a value, with its bar if it has one."""
    if isinstance(value, str):
        return value
    return value.text if value.share is None else "█" * round(_BAR * value.share)
