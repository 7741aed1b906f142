"""Count requests to S3 by the classes that providers bill."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import parse_qs, urlsplit

from milepost.codec import Count
from milepost.protocol.records import ObjectStore


class RequestClass(Enum):
    """Billing class of a request.

    PUT includes COPY, POST and LIST. GET includes HEAD. DELETE is of one object or of many.
    """

    PUT = "put"
    GET = "get"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class StoreRequests:
    """Number of requests to S3 by class, and the bytes of their bodies. Each retry counts. Local stores make none.

    Attributes:
        sent_bytes: of request bodies.
        received_bytes: of reply bodies, as their headers state.
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
        """Return the requests since `earlier`, at least 0 of each class: a task may have taken its own in between."""
        return StoreRequests(
            max(0, self.puts - earlier.puts),
            max(0, self.gets - earlier.gets),
            max(0, self.deletes - earlier.deletes),
            max(0, self.sent_bytes - earlier.sent_bytes),
            max(0, self.received_bytes - earlier.received_bytes),
        )

    @property
    def total(self) -> int:
        """Requests of all classes."""
        return self.puts + self.gets + self.deletes


NO_REQUESTS = StoreRequests()


def own_put(store: ObjectStore) -> StoreRequests:
    """Return the put of a metrics object that counts itself. Its size is not known yet."""
    return NO_REQUESTS if store.config.is_local else StoreRequests(puts=1)


class RequestCounter:
    """Counts the requests of a process, from any thread. A forked process starts from the counts of its parent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(RequestClass, 0)
        self._sent = self._received = 0

    def sent(self, kind: RequestClass, body_bytes: int = 0) -> None:
        """Count a request that is about to be sent."""
        with self._lock:
            self._counts[kind] += 1
            self._sent += body_bytes

    def received(self, body_bytes: int) -> None:
        """Add the bytes of a reply body."""
        with self._lock:
            self._received += body_bytes

    def totals(self) -> StoreRequests:
        """Return the counts since the process started. Subtract two of them for the requests in between."""
        with self._lock:
            return self._totals()

    def take(self, earlier: StoreRequests, upcoming: StoreRequests) -> StoreRequests:
        """Return the requests since `earlier` plus the upcoming ones, and remove them from these counts.

        A task reports its own requests. In the driver's process they must not count for the driver as well.
        Example: 5 gets when the task started, 8 now. The task takes 3, and the counter is at 5 again.
        """
        with self._lock:
            taken = self._totals() - earlier + upcoming
            for kind, count in zip(RequestClass, (taken.puts, taken.gets, taken.deletes), strict=True):
                self._counts[kind] -= count
            self._sent -= taken.sent_bytes
            self._received -= taken.received_bytes
        return taken

    def _totals(self) -> StoreRequests:
        puts, gets, deletes = (self._counts[kind] for kind in RequestClass)
        return StoreRequests(puts, gets, deletes, self._sent, self._received)


REQUEST_COUNTER = RequestCounter()
"""Counter of this process. Its stores share connections, so they share a counter as well."""


def count_requests(client: Any) -> None:
    """Make a boto3 client of S3 count its requests, each retry as it is sent."""
    client.meta.events.register("before-send.s3", _count_sent)
    client.meta.events.register("response-received.s3", _count_received)


def class_of(method: str, url: str) -> RequestClass:
    """Return the billing class of a request to S3."""
    query = parse_qs(urlsplit(url).query, keep_blank_values=True)
    if method == "DELETE" or (method == "POST" and "delete" in query):
        return RequestClass.DELETE
    listing = method == "GET" and not {"list-type", "uploads"}.isdisjoint(query)
    return RequestClass.GET if method in ("GET", "HEAD") and not listing else RequestClass.PUT


def _count_sent(request: Any, **_: object) -> None:
    REQUEST_COUNTER.sent(class_of(request.method, request.url), _length(request.headers))


def _count_received(event_name: str, response_dict: dict[str, Any] | None, **_: object) -> None:
    if response_dict is not None and ".Head" not in event_name:  # a HEAD states the length of a body it does not have
        REQUEST_COUNTER.received(_length(response_dict["headers"]))


def _length(headers: Any) -> int:
    length = headers.get("Content-Length", "")
    text = length.decode() if isinstance(length, bytes) else str(length)
    return int(text) if text.isdigit() else 0
