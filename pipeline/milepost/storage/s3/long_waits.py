"""Log requests to S3 that wait long for their answer, so that no log is silent while a store hangs.

A request of this process is in a table from its call to its answer, its retries included. One thread per process
looks at the table once a second while there are requests:

    0 s   GetObject begins
    5 s   "no answer for 5 s: GetObject http://store:9000/bucket/key"
    15 s  "no answer for 15 s: GetObject http://store:9000/bucket/key"
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

_LOG = logging.getLogger(__name__)

_FIRST_S = 5.0
_AGAIN_S = 10.0
_LOOK_S = 1.0


@dataclass(slots=True)
class _Waiting:
    """A request without an answer. due_s: when to log it next, by the monotonic clock."""

    what: str
    url: str
    began_s: float
    due_s: float


class LongWaits:
    """The requests of this process that wait for an answer, at most one per thread.

    Args:
        first_s: how long a request waits before it is logged. again_s: until the next line. look_s: between two looks.
    """

    def __init__(self, first_s: float = _FIRST_S, again_s: float = _AGAIN_S, look_s: float = _LOOK_S) -> None:
        self._first_s, self._again_s, self._look_s = first_s, again_s, look_s
        self._waiting: dict[int, _Waiting] = {}
        self._begun = threading.Event()
        threading.Thread(target=self._watch, name="long waits", daemon=True).start()

    def observe(self, client: Any) -> None:
        """Follow the requests of a boto3 client."""
        client.meta.events.register("before-call.s3", self._called)
        client.meta.events.register("after-call.s3", self._end)
        client.meta.events.register("after-call-error.s3", self._end)

    @contextmanager
    def reading_body(self, name: str) -> Iterator[None]:
        """Follow the block, which reads the body of an object after the response has begun."""
        self._begin("the rest of", name)
        try:
            yield
        finally:
            self._end()

    def _called(self, model: Any, params: dict[str, Any], **_: object) -> None:
        self._begin(model.name, params["url"])

    def _begin(self, what: str, url: str) -> None:
        now_s = time.monotonic()
        self._waiting[threading.get_ident()] = _Waiting(what, url, now_s, now_s + self._first_s)
        if not self._begun.is_set():
            self._begun.set()

    def _end(self, **_: object) -> None:
        self._waiting.pop(threading.get_ident(), None)

    def _watch(self) -> None:
        pause = threading.Event()
        while self._begun.wait():
            pause.wait(self._look_s)
            self._begun.clear()
            if self._waiting:
                self._begun.set()
            self._log_due()

    def _log_due(self) -> None:
        now_s = time.monotonic()
        for thread, waiting in list(self._waiting.items()):
            if now_s < waiting.due_s:
                continue
            waiting.due_s += self._again_s
            if _is_in_request(thread):
                seconds = now_s - waiting.began_s
                _LOG.warning("no answer for %.0f s: %s %s", seconds, waiting.what, _shown(waiting.url))
            else:  # a signal has ended the request without an event
                self._waiting.pop(thread, None)


def _shown(url: str) -> str:
    """Return an unsigned URL without its query and credentials, and the prefix of a listing.

    `http://store/lake?list-type=2&prefix=a%2Fb` becomes `http://store/lake?prefix=a/b`.
    """
    parts = urlsplit(url)
    raw = next((item for item in parts.query.split("&") if item.startswith("prefix=")), "")
    prefix = raw.removeprefix("prefix=").replace("%2F", "/")  # other characters stay encoded: names are hostile
    path = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
    return f"{path}?prefix={prefix}" if prefix else path


def _is_in_request(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("botocore."):
            return True
        frame = frame.f_back
    return False


@lru_cache(1)
def long_waits(process: int) -> LongWaits:
    """Return those of this process. A forked process has its own: threads do not cross a fork."""
    return LongWaits()
