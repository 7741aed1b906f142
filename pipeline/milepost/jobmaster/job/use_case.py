"""Use cases: what observers of a job do as one of them ends."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

OnEnd = Callable[[BaseException | None], None]
"""Called as a use case ends, with the error that it raises, or None."""


class _Context(Protocol):
    @property
    def use_case_ends(self) -> UseCaseEnds: ...


class _HasContext(Protocol):
    @property
    def _context(self) -> _Context: ...


S = TypeVar("S", bound=_HasContext)


class _Depth(threading.local):
    """The number of use cases that the current thread is inside of."""

    value = 0


@dataclass(frozen=True)
class UseCaseEnds:
    """The callbacks of an opened job's observers. They neither raise nor wait without a bound.

    Attributes:
        callbacks: called in their order.
    """

    callbacks: list[OnEnd] = field(default_factory=list)
    _depth: _Depth = field(default_factory=_Depth)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Call the callbacks at the end of the block, unless it is within another one of this thread."""
        failure: BaseException | None = None
        self._depth.value += 1
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self._depth.value -= 1
            if not self._depth.value:
                for callback in self.callbacks:
                    callback(failure)


def use_case(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Mark a method that changes the job: its transitions have reached the observers when it returns or raises.

    A use case that another one calls reports together with it.
    """

    @functools.wraps(method)
    def reported(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._context.use_case_ends.around():
            return method(self, *args, **kwargs)

    return reported
