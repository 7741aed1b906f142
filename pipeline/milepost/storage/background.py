"""Requests in the background: asked by a thread that never keeps the process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

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
