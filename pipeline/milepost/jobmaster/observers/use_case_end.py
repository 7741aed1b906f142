"""The end of a use case: what listeners do as it returns or raises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def followed_by(use_case: T, end: Callable[[BaseException | None], None]) -> T:
    """Return a use case that ends with a call, whatever comes of it.

    Args:
        end: is told what was raised; None: it returned.
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
