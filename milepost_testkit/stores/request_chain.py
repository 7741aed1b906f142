"""Record which S3 request had to wait for which, independent of timing.

Dependencies are traced, not measured. A request depends on the previous one of its thread. A new thread depends on the
requests of the thread that started it. Code that takes the result of a future depends on the requests behind it. So the
same program has the same chain on every run. A limited number of pool workers is not modelled, and requests of other
processes are not recorded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.httpsession import URLLib3Session


@dataclass(frozen=True, slots=True)
class ChainedRequest:
    """One request, in the order in which they began.

    Attributes:
        method, key: of an object; a listing is LIST and its prefix, deletions are POST.
        step: what the process was at. thread: by whose name it was sent. began_s, ended_s: on one monotonic clock.
        after: number of the request that it waited for; None: of none. line: how many stood in line up to it.
    """

    number: int
    method: str
    key: str
    step: str
    thread: str
    began_s: float
    ended_s: float
    after: int | None
    line: int


class RequestChain:
    """Records the requests of this process while `recording`. They are sent as usual.

    Attributes:
        step: set by the code that follows the steps.
    """

    def __init__(self) -> None:
        self.step = ""
        self._sent: list[ChainedRequest] = []
        self._lock = threading.Lock()
        self._here = threading.local()

    def __call__(self, step: str) -> None:
        self.step = step

    @property
    def requests(self) -> list[ChainedRequest]:
        return list(self._sent)

    def clear(self) -> None:
        """Forget all requests, so that the next one of this thread depends on none."""
        self._sent.clear()
        self._mark = 0, None

    @contextmanager
    def recording(self) -> Iterator[RequestChain]:
        """Record the requests of this process and their dependencies."""
        submit, result, start, join = (
            ThreadPoolExecutor.submit,
            Future.result,
            threading.Thread.start,
            threading.Thread.join,
        )
        send, set_result, set_exception = URLLib3Session.send, Future.set_result, Future.set_exception
        chain = self

        def sent(session: Any, request: Any) -> Any:
            return chain._send(lambda: send(session, request), request.method, request.url)

        def submitted(pool: Any, act: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
            return submit(pool, chain._following(act), *args, **named)

        def answered(future: Any, value: Any) -> None:
            future.request_chain_mark = chain._mark
            set_result(future, value)

        def failed(future: Any, error: Any) -> None:
            future.request_chain_mark = chain._mark
            set_exception(future, error)

        def taken(future: Any, timeout: float | None = None) -> Any:
            try:
                return result(future, timeout)
            finally:
                chain._mark = max(chain._mark, getattr(future, "request_chain_mark", (0, None)), key=_length)

        def started(thread: Any) -> None:
            thread.run = chain._following(thread.run, thread)
            start(thread)

        def joined(thread: Any, timeout: float | None = None) -> None:
            join(thread, timeout)
            chain._mark = max(chain._mark, getattr(thread, "request_chain_mark", (0, None)), key=_length)

        with (
            patch.object(URLLib3Session, "send", sent),
            patch.object(ThreadPoolExecutor, "submit", submitted),
            patch.object(Future, "set_result", answered),
            patch.object(Future, "set_exception", failed),
            patch.object(Future, "result", taken),
            patch.object(threading.Thread, "start", started),
            patch.object(threading.Thread, "join", joined),
        ):
            yield self

    @property
    def _mark(self) -> tuple[int, int | None]:
        """Length of the chain that this thread's next request depends on, and its last request."""
        return getattr(self._here, "mark", (0, None))

    @_mark.setter
    def _mark(self, mark: tuple[int, int | None]) -> None:
        self._here.mark = mark

    def _following(self, act: Callable[..., Any], thread: Any = None) -> Callable[..., Any]:
        """Wrap `act` so that it depends on this thread's requests, whichever thread runs it."""
        mark = self._mark

        def done(*args: Any, **named: Any) -> Any:
            self._mark = mark
            try:
                return act(*args, **named)
            finally:
                if thread is not None:
                    thread.request_chain_mark = self._mark

        return done

    def _send(self, send: Callable[[], Any], method: str, url: str) -> Any:
        line, after = self._mark
        with self._lock:
            number = len(self._sent)
            what, key = _said(method, url)
            request = ChainedRequest(
                number, what, key, self.step, threading.current_thread().name, time.monotonic(), 0.0, after, line + 1
            )
            self._sent.append(request)
        try:
            return send()
        finally:
            self._sent[number] = replace(request, ended_s=time.monotonic())
            self._mark = line + 1, number


def longest_chain(requests: Sequence[ChainedRequest]) -> list[ChainedRequest]:
    """Return the longest chain, in order. Among several, the one that ended last."""
    if not requests:
        return []
    by_number = {one.number: one for one in requests}
    last: ChainedRequest | None = max(requests, key=lambda one: (one.line, one.ended_s))
    chain = list[ChainedRequest]()
    while last is not None:
        chain.append(last)
        last = None if last.after is None else by_number.get(last.after)
    return chain[::-1]


def _length(mark: tuple[int, int | None]) -> int:
    return mark[0]


def _said(method: str, url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    query, path = parse_qs(parts.query), unquote(parts.path)
    bucket, _, key = path.lstrip("/").partition("/")
    if "list-type" in query:
        return "LIST", query.get("prefix", [""])[0]
    return method, key or bucket
