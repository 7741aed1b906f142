"""Requests to S3 are counted where they are made, by the classes that providers bill."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import parse_qs, urlsplit

from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.records.stored_fields import Count


class RequestClass(Enum):
    """What a request is billed as.

    PUT: also COPY, POST and LIST. GET: also HEAD. DELETE: of one object or of many.
    """

    PUT = "put"
    GET = "get"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class StoreRequests:
    """How many requests were made to S3, by class, each try on its own; and the bytes of their bodies.

    A directory is asked by none.

    Attributes:
        sent_bytes: to S3. received_bytes: from it, as the reply's head says.
    """

    puts: Count = 0
    gets: Count = 0
    deletes: Count = 0
    sent_bytes: Count = 0
    received_bytes: Count = 0

    def __add__(self, other: StoreRequests) -> StoreRequests:
        return StoreRequests(
            self.puts + other.puts,
            self.gets + other.gets,
            self.deletes + other.deletes,
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
        )

    def __sub__(self, earlier: StoreRequests) -> StoreRequests:
        """Return what came since, of no class fewer than none: what a task took meanwhile is not counted here."""
        return StoreRequests(
            max(0, self.puts - earlier.puts),
            max(0, self.gets - earlier.gets),
            max(0, self.deletes - earlier.deletes),
            max(0, self.sent_bytes - earlier.sent_bytes),
            max(0, self.received_bytes - earlier.received_bytes),
        )

    @property
    def made(self) -> int:
        """Requests of all classes."""
        return self.puts + self.gets + self.deletes


NOTHING_ASKED = StoreRequests()


def own_put(store: ObjectStore) -> StoreRequests:
    """Return the put of an object that says what was measured, its own put included; its bytes are not known yet."""
    return NOTHING_ASKED if store.config.is_local else StoreRequests(puts=1)


class RequestCounter:
    """Counts the requests of a process, from any thread. A forked process goes on from its parent's counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(RequestClass, 0)
        self._sent = self._received = 0

    def sent(self, kind: RequestClass, body_bytes: int = 0) -> None:
        """Count a request that is about to be made."""
        with self._lock:
            self._counts[kind] += 1
            self._sent += body_bytes

    def received(self, body_bytes: int) -> None:
        """Add the bytes of a reply's body."""
        with self._lock:
            self._received += body_bytes

    def so_far(self) -> StoreRequests:
        """Return what was counted since the process began: a difference of two is what lay between them."""
        with self._lock:
            return self._so_far()

    def take(self, earlier: StoreRequests, coming: StoreRequests) -> StoreRequests:
        """Return what was counted since `earlier`, with what is about to be made, and count it here no more.

        A task's requests are the task's, also where it runs in the process of the driver, which counts its own.
        """
        with self._lock:
            taken = self._so_far() - earlier + coming
            for kind, count in zip(RequestClass, (taken.puts, taken.gets, taken.deletes), strict=True):
                self._counts[kind] -= count
            self._sent -= taken.sent_bytes
            self._received -= taken.received_bytes
        return taken

    def _so_far(self) -> StoreRequests:
        puts, gets, deletes = (self._counts[kind] for kind in RequestClass)
        return StoreRequests(puts, gets, deletes, self._sent, self._received)


MADE = RequestCounter()
"""Of this process: its stores share connections, so they share a counter too."""


def count_requests(client: Any) -> None:
    """Have a boto3 client of S3 count its requests: every try of each, as it is sent."""
    client.meta.events.register("before-send.s3", _count_sent)
    client.meta.events.register("response-received.s3", _count_received)


def class_of(method: str, url: str) -> RequestClass:
    """Return what a request to S3 is billed as."""
    query = parse_qs(urlsplit(url).query, keep_blank_values=True)
    if method == "DELETE" or (method == "POST" and "delete" in query):
        return RequestClass.DELETE
    listing = method == "GET" and not {"list-type", "uploads"}.isdisjoint(query)
    return RequestClass.GET if method in ("GET", "HEAD") and not listing else RequestClass.PUT


def _count_sent(request: Any, **_: object) -> None:
    MADE.sent(class_of(request.method, request.url), _length(request.headers))


def _count_received(event_name: str, response_dict: dict[str, Any] | None, **_: object) -> None:
    if response_dict is not None and ".Head" not in event_name:  # whose reply tells the length of what it has not
        MADE.received(_length(response_dict["headers"]))


def _length(headers: Any) -> int:
    length = headers.get("Content-Length", "")
    text = length.decode() if isinstance(length, bytes) else str(length)
    return int(text) if text.isdigit() else 0
