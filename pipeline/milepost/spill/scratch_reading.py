"""Distinguish unreadable content from a scratch disk that fails to return its copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from milepost.storage import on_scratch_disk


@contextmanager
def reading_scratch(refused: Callable[[Exception], Exception], *, who: str = "") -> Iterator[None]:
    """Guard an Arrow read of content that may be stored on the scratch disk.

    An error with an errno is the disk's. Arrow's own errors have none: they are about the content.

    Args:
        refused: makes the error to raise for unreadable content.
        who: see `on_scratch_disk`.
    Raises:
        EnvironmentUnusable: the disk cannot be read.
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
