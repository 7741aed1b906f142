"""Spec of the `latest` operator: keep the newest row of each key."""

from __future__ import annotations

from typing import Literal

from milepost.jobspec.job.operators.keyed import KeyColumns, KeyedOperator
from milepost.language import PositiveDuration, Text


class LatestOperator(KeyedOperator):
    """The newest row of each key, ordered by columns. Each epoch emits the keys that changed.

    The output is updates, for an upsert or changelog sink, with deletes if `delete_when` is given. It has no event
    time. Among rows with equal `sequence_by`, a delete wins, then the greater row, comparing all columns of the table
    in the order of the input.

    Attributes:
        sequence_by: columns, each once, that order the rows of a key; the greatest row is the newest. As in Spark, null
            is the smallest value and NaN the greatest number.
        delete_when: Spark SQL condition over one input row. A row for which it is true deletes its key. null: no
            deletes.
        columns: columns of the table, which must include `key`. null: all columns of the input.
        tombstone_ttl: how long a deleted key is remembered, in event time, above 0s, so that an older row cannot revive
            it. Rows older than that are late and go to `<uid>.late`. null: deleted keys are remembered permanently, and
            no row is late.
    """

    kind: Literal["latest"]
    sequence_by: KeyColumns
    delete_when: Text | None = None
    columns: KeyColumns | None = None
    tombstone_ttl: PositiveDuration | None = None
