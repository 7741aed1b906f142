"""Distinguish unreadable content from a scratch disk that fails to return its copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from milepost.storage.scratch_disk import on_scratch_disk


@contextmanager
def content_of_scratch(refused: Callable[[Exception], Exception], *, who: str = "") -> Iterator[None]:
    """Read what may lie on the scratch disk by Arrow.

    Args:
        refused: gives what is raised when the content is at fault: Arrow's own errors have no number.
        who: as of `on_scratch_disk`.
    Raises: EnvironmentUnusable: the disk is.
    """
    try:
        with on_scratch_disk("give back an object that is too large to be held in memory", who=who):
            yield
    except MemoryError:  # among pyarrow's errors too: it is about the process
        raise
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise refused(error) from error
