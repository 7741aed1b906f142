"""A test in a process of its own: what it does to its Spark, or to its process, is no other test's."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable


def in_own_process(act: Callable[..., None], *arguments: object) -> None:
    """Call a function of a module with what can be pickled. Raises AssertionError: it has failed."""
    process = multiprocessing.get_context("spawn").Process(target=act, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0, "what was wrong is on stderr"
