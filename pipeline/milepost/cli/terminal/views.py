"""Print a document to the terminal."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from milepost.cli.terminal.output import Output
from milepost.runbook import address
from milepost.views import printable

if TYPE_CHECKING:
    from milepost.views import Fact, Fold, Section, Table, Text, View

_GAP = 2
_BAR = 30


def show_view(view: View, output: Output, folds: Collection[Fold] = ()) -> None:
    """Print a document. folds: which folded parts to print."""
    output.text(f"{view.title}: {', '.join(output.style(state.text, state.meaning) for state in view.states)}")
    for number, section in enumerate(view.sections):
        if section.fold is None or section.fold in folds:
            if number:
                output.text()
            _show_section(section, output, folds)


def one_line(view: View) -> str:
    """Return a document as one line, for a log, without optional columns."""
    parts = [f"{fact.label} {_fact(fact)}" for section in view.sections for fact in section.facts]
    for table in (table for section in view.sections for table in section.tables):
        for row in table.rows:
            cells = dict(zip(table.columns, map(plain, row.cells), strict=True))
            parts += [f"{column} {cell}" for column, cell in cells.items() if column not in table.optional]
            parts += [row.note] if row.note else []
    return printable(f"{view.title}: {', '.join(state.text for state in view.states)}: {', '.join(parts)}")


def _fact(fact: Fact) -> str:
    return f"{plain(fact.value)}, {fact.note}" if fact.note else plain(fact.value)


def _show_section(section: Section, output: Output, folds: Collection[Fold]) -> None:
    if section.title:
        title = f"{section.title}: {section.about}" if section.about else section.title
        output.paragraph(title, "", "", section.meaning)
    names = max((len(fact.label) for fact in section.facts), default=0) + _GAP
    for fact in section.facts:
        output.paragraph(_fact(fact), " " * (names + _GAP), f"  {fact.label.ljust(names)}")
    for line in section.lines:
        output.paragraph(line, "    ", "  ")
    for table in section.tables:
        show_table(table, output)
        for fold in (fold for row in table.rows for fold in row.folds if fold.fold in folds):
            output.text()
            show_table(fold, output)
    for line in section.source.splitlines():
        output.text(printable(line))


def show_table(table: Table, output: Output) -> None:
    """Print a table, below its title if it has one."""
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
    """Return the text of a value: its bar if it has one, and the command to type for a runbook page."""
    if isinstance(value, str):
        return value
    if value.link is not None and value.link.target == "runbook":
        return address(str(value.link.parts[0]))
    return value.text if value.share is None else "█" * round(_BAR * value.share)
