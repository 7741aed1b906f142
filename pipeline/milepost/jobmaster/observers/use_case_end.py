"""Wrap a use case so that listeners run when it returns or raises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def followed_by(use_case: T, end: Callable[[BaseException | None], None]) -> T:
    """Return the use case, followed by a call of `end` whether it returns or raises.

    Args:
        end: receives the exception; None if the use case returned.
    """
    call = cast(Callable[..., Any], use_case)

    @functools.wraps(call)
    def followed(*args: Any, **options: Any) -> Any:
        failure: BaseException | None = None
        try:
            return call(*args, **options)
        except BaseException as error:
            failure = error
            raise
        finally:
            end(failure)

    return cast(T, followed)
