"""A `cached_property` that holds no lock while it computes.

In Python 3.11 `functools.cached_property` has one lock for all objects of a class. When one process has two jobs open,
the second would wait until the first has read its store.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property` as in Python 3.12; concurrent callers all get the value that was stored first."""

        def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            computed, name = vars(instance), self.attrname
            return computed[name] if name in computed else computed.setdefault(name, self.func(instance))
