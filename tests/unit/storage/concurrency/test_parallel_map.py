"""Parallel requests: answers in order, the first error raised, and no wait for requests no longer needed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from milepost.storage.concurrency.thread_pools import parallel_map

FAR: Any = SimpleNamespace(config=SimpleNamespace(is_local=False))
"""A store that several threads use."""
NEAR: Any = SimpleNamespace(config=SimpleNamespace(is_local=True))


def test_answers_come_in_the_order_of_the_requests() -> None:
    turns = [threading.Event() for _ in range(3)]
    turns[-1].set()

    def ask(number: int) -> int:
        assert turns[number].wait(60)
        if number:
            turns[number - 1].set()  # the last one answers first
        return number * 10

    assert parallel_map(FAR, ask, range(3)) == [0, 10, 20]


def test_a_directory_is_read_by_one_thread_unless_more_wait_for_its_disk() -> None:
    asking = {width: _threads(width) for width in (1, 2)}
    assert asking == {1: 1, 2: 2}


def _threads(width: int) -> int:
    """Number of threads that call a directory, when each waits until as many as allowed do so."""
    together = threading.Barrier(width)

    def ask(_: int) -> int:
        together.wait(60)
        return threading.get_ident()

    return len(set(parallel_map(NEAR, ask, range(2), locally=width)))


def test_an_error_is_raised_while_another_request_still_waits() -> None:
    """As an interruption is: a store that is silent must not keep a command from ending."""
    asked, never = threading.Event(), threading.Event()

    def ask(number: int) -> None:
        if number == 0:
            assert asked.wait(60)
            raise LookupError("of the first")
        asked.set()
        never.wait(60)

    with pytest.raises(LookupError, match="of the first"):
        parallel_map(FAR, ask, range(2))
    assert not never.is_set()
    never.set()
