"""The part of a spec that joins rows with the version that was the newest at their time."""

from __future__ import annotations

from typing import Literal

from milepost.spec.job.operators.join import PairedOperator


class AsofOperator(PairedOperator):
    """Each row of its left input with the newest version of its key: the right row of at most its event time.

    The right input is a change feed: its rows are versions, each of which holds from its event time until that of the
    next one of its key; of two of one time the greatest holds, by all of its columns, compared one after another in the
    order in which the input has them. A left row comes out when the watermark of both inputs is past it. The output has
    the columns of the left row, then those of the version without its key; its event time is the left row's.
    `<uid>.late.<input>` has the late rows of an input. A key with a null in it has no version.

    Attributes:
        how: inner, left rows with a version alone; left, those without one too, with null in its columns.
    """

    kind: Literal["asof"]
    how: Literal["inner", "left"] = "inner"
