"""What upsert costs, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milepost.cli.terminal.output import Output, show_bytes
from milepost.epoch.quantities import counted

if TYPE_CHECKING:
    from milepost.jobmaster.jobmaster import UpsertPrice


def show_prices(prices: Iterable[UpsertPrice], output: Output) -> None:
    """Print a line for each table of the latest rows, and what would be cheaper."""
    for price in prices:
        output.paragraph(price_text(price), "  ", "")
        if price.advice is not None:
            output.note(f"note: {price.sink}: {price.advice}")


def price_text(price: UpsertPrice) -> str:
    """Return what a table costs in one sentence."""
    table = f"upsert of {price.sink}: {counted(price.files, 'file')}, {show_bytes(price.table_bytes)}"
    if not price.epochs:
        return f"{table}; what an epoch writes is known after the next one"
    files, written = counted(price.files_per_epoch, "file"), show_bytes(price.written_bytes_per_epoch)
    changed, measured = show_bytes(price.changed_bytes_per_epoch), counted(price.epochs, "epoch")
    day = ""
    if price.written_bytes_per_day is not None and price.epochs_per_day is not None:
        pace = "" if price.by_schedule else "at their pace "
        day = f"; {pace}{price.epochs_per_day:,.0f} epochs a day write {show_bytes(price.written_bytes_per_day)}"
    epoch = f"an epoch writes {files} again, {written}, for {changed} of changed rows (as its last {measured} did)"
    return f"{table}; {epoch}{day}; with what is retained it keeps {show_bytes(price.kept_bytes)}"
