"""By what rows are routed where a null in their key is no value that others could be equal to."""

from __future__ import annotations


class NullsApart(tuple[str, ...]):
    """Key columns by which rows are routed; rows with a null in them, which match nothing, by all of their columns.

    Rows without a key are as many as a feed makes them, and would all be one subtask's.
    """

    __slots__ = ()
