"""A property that is computed once per object, whatever another object of its class waits for meanwhile.

Python 3.11 computes `functools.cached_property` under one lock for all objects of the class: of two jobs that one
process has opened, the second would wait for the store of the first.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property` as Python 3.12 has it; of several threads all get what the first one computed."""

        def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            computed, name = vars(instance), self.attrname
            return computed[name] if name in computed else computed.setdefault(name, self.func(instance))
