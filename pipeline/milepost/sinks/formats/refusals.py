"""Refuse a table, a column or the rows of an epoch: the same messages for every format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from milepost.errors import InvalidRequest


class Refusal(NamedTuple):
    """Why a table or a column is refused.

    Attributes:
        reason: the predicate of the message, after the table or column. hint: what to do.
    """

    reason: str
    hint: str


def refuse_table(sink: str, table: str, refusals: Iterable[Refusal]) -> None:
    """Raise InvalidRequest for the first refusal, if there is one.

    Args:
        table: its name or URL.
    """
    for refusal in refusals:
        raise table_refused(sink, table, refusal)


def table_refused(sink: str, table: str, refusal: Refusal) -> InvalidRequest:
    """Return the error for a table that cannot be written."""
    message = f"sink {sink}: its table {table} {refusal.reason}. Nothing was published."
    return InvalidRequest(message, hint=refusal.hint, sink=sink)


def column_refused(sink: str, column: str, refusal: Refusal) -> InvalidRequest:
    """Return the error for a column that the table cannot have, or with values that it cannot have."""
    message = f"sink {sink}: column {column!r} {refusal.reason}. Nothing was published."
    return InvalidRequest(message, hint=refusal.hint, sink=sink, column=column)


def refuse_case_variants(sink: str, names: Iterable[str]) -> None:
    """Refuse names that differ only in case, because engines treat them as one. Raises InvalidRequest."""
    by_lower_case: dict[str, str] = {}
    for name in names:
        if (other := by_lower_case.setdefault(name.lower(), name)) != name:
            reason = f"differs from {other!r} only in case, which engines treat as one name"
            raise column_refused(sink, name, Refusal(reason, "rename one of them: `SELECT … AS other_name`"))


def partition_mismatch(actual: Sequence[str], stated: Sequence[str], other_way: str) -> Refusal:
    """Return the refusal of a table with other partition columns than the spec states.

    Args:
        other_way: what to do instead of changing the spec, as the end of the hint.
    """
    is_now, in_spec = (", ".join(names) or "nothing" for names in (actual, stated))
    return Refusal(
        f"is partitioned by {is_now}, but `partition_by` says {in_spec}",
        f"write `partition_by: {list(actual)}`, {other_way}",
    )
