"""Routing keys that spread rows with a null in their key."""

from __future__ import annotations


class NullSpreadingKey(tuple[str, ...]):
    """Key columns for routing. Rows with a null in them match nothing, so they are routed by all of their columns.

    A feed may have any number of rows without a key, which would otherwise all go to one subtask.
    """

    __slots__ = ()
