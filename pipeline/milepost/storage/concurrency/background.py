"""Run requests on background threads that do not keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from milepost.protocol.records import ObjectStore

T = TypeVar("T")


def run_in_background(request: Callable[[], T], thread_name: str) -> Future[T]:
    """Start `request` on a daemon thread and return its future. The caller does not have to wait for it."""
    answer = Future[T]()

    def run() -> None:
        try:
            answer.set_result(request())
        except Exception as error:  # noqa: BLE001 - raised to the caller that waits for the answer
            answer.set_exception(error)

    threading.Thread(target=run, name=thread_name, daemon=True).start()
    return answer


def prefetch(store: ObjectStore, request: Callable[[], T], thread_name: str) -> Callable[[], T]:
    """Start `request` in the background and return a function that waits for its answer or raises its error.

    A local store answers without a round trip, so there `request` runs when its answer is needed.

    Args:
        store: the store that `request` reads.
    """
    return request if store.config.is_local else run_in_background(request, thread_name).result
