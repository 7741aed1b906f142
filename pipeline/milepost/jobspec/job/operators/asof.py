"""Spec of the `asof` operator: join rows with the current version of their key."""

from __future__ import annotations

from typing import Literal

from milepost.jobspec.job.operators.join import PairedOperator


class AsofOperator(PairedOperator):
    """Joins each left row with the version of its key that is current at its event time.

    The right input is a change feed. Each of its rows is a version that is valid from its event time until that of the
    next version of the same key. Of two versions with the same event time the greater one wins, comparing all columns
    in the order of the input. A left row is emitted when the watermark of both inputs has passed it. The output has
    the columns of the left row, then those of the version without its key; its event time is that of the left row.
    Late rows of an input go to `<uid>.late.<input>`. A key that contains a null has no version.

    Attributes:
        how: inner: only left rows that have a version. left: all left rows, with nulls where there is no version.
    """

    kind: Literal["asof"]
    how: Literal["inner", "left"] = "inner"
