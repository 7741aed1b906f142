"""Requests in the background: asked by a thread that never keeps the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from milepost.protocol.records.object_store import ObjectStore

T = TypeVar("T")


def in_background(ask: Callable[[], T], thread_name: str) -> Future[T]:
    """Return what will be the answer, or the error that `ask` raises; nobody has to wait for it."""
    answer = Future[T]()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the answer
            answer.set_exception(error)

    threading.Thread(target=run, name=thread_name, daemon=True).start()
    return answer


def begin_beside(store: ObjectStore, ask: Callable[[], T], thread_name: str) -> Callable[[], T]:
    """Begin to ask beside what the caller does next; return what waits for the answer, or raises its error.

    A directory answers at once: it is asked when the answer is waited for.

    Args:
        store: the one that is asked.
    """
    return ask if store.config.is_local else in_background(ask, thread_name).result
