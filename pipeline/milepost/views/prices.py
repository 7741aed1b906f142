"""Format the cost of upserts, of an epoch and of a month."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.epoch import counted
from milepost.views.text import show_bytes, show_count

if TYPE_CHECKING:
    from milepost.jobmaster import EpochCost, MonthCost, UpsertPrice


def price_text(price: UpsertPrice) -> str:
    """Return the cost of a table in one sentence."""
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


def show_money(currency: str, amount: float) -> str:
    """Return an amount: with two decimals from 1 on, below that with two significant digits."""
    return f"{currency} {amount:,.2f}" if amount >= 1 or not amount else f"{currency} {amount:.2g}"


def epoch_cost_text(cost: EpochCost) -> str:
    """Return the cost of an epoch on one line."""
    return f"{show_money(cost.currency, cost.total)} ({_parts(cost)})"


def month_cost_text(month: MonthCost) -> str:
    """Return the cost of a month in one sentence, and the basis of the estimate."""
    stored = f"{show_bytes(month.stored_bytes)} kept"
    if month.epochs is None:
        return f"{show_money(month.currency, month.total)} for {stored}; how many epochs it has is not known yet"
    pace = "by the schedule" if month.by_schedule else "at their pace"
    epochs = f"{show_count(round(month.epochs))} epochs {pace}, as the last {month.measured} were"
    return f"{show_money(month.currency, month.total)} ({_parts(month)}): {epochs}; {stored}"


def _parts(cost: EpochCost | MonthCost) -> str:
    """Return the parts that have a price."""
    parts = {name: getattr(cost, name, None) for name in ("requests", "transfer", "compute", "storage")}
    parts_text = [f"{name} {show_money(cost.currency, part)}" for name, part in parts.items() if part is not None]
    return ", ".join(parts_text) or "nothing has a price"
