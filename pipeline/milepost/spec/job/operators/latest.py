"""The part of a spec that keeps the newest row of each key."""

from __future__ import annotations

from typing import Literal

from milepost.spec.job.operators.keyed import KeyColumns, KeyedOperator
from milepost.spec.values.fields import PositiveDuration, Text


class LatestOperator(KeyedOperator):
    """The newest row of each key, by columns that say which is newer; emits, per epoch, the keys that changed.

    Its output is updates, which an upsert sink or a changelog takes, with deletes where `delete_when` is said; it has
    no event time. Of rows that are equal in `sequence_by` a delete is the newest, then the one that is greatest in all
    columns of the table, compared one after another in the order in which the input has them.

    Attributes:
        sequence_by: columns, each once, by which the newer row is the greater one. As in Spark null is the least and
            NaN the greatest number.
        delete_when: condition of Spark SQL over a row of the input; where it is true the row deletes its key. null: no
            row does.
        columns: of the table, those of `key` among them. null: all of the input.
        tombstone_ttl: event time for which a deleted key is remembered, above 0s, so that no older row revives it;
            `<uid>.late` has what comes later. null: for ever, and nothing is late.
    """

    kind: Literal["latest"]
    sequence_by: KeyColumns
    delete_when: Text | None = None
    columns: KeyColumns | None = None
    tombstone_ttl: PositiveDuration | None = None
