"""An S3 request that waits long is logged repeatedly, with its name."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from milepost.storage.s3.long_waits import LongWaits
from milepost_testkit import wording


class Lines(logging.Handler):
    """Collects logged lines, and sets `enough` once there are `count` of them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.enough = threading.Event()
        self._count = count

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if len(self.lines) >= self._count:
            self.enough.set()


@contextmanager
def lines_logged(count: int) -> Iterator[Lines]:
    lines, logger = Lines(count), logging.getLogger("milepost.storage.s3.long_waits")
    logger.addHandler(lines)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)


class Hanging(BaseHTTPRequestHandler):
    """Sends nothing, or half a body, until it is released."""

    released = threading.Event()

    def do_GET(self) -> None:
        if "half" in self.path:
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"ab")
            self.wfile.flush()
            self.released.wait(30)
            self.wfile.write(b"cd")
            return
        self.released.wait(30)
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Hanging.released.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hanging)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    Hanging.released.set()
    server.shutdown()
    server.server_close()


def client_of(endpoint: str) -> Any:
    access = {"aws_access_key_id": "a", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=endpoint, **access)


def refused(request: Callable[..., object], **names: str) -> None:
    with pytest.raises(ClientError):
        request(**names)


def test_an_unanswered_request_is_logged_repeatedly_until_it_is_answered(endpoint: str) -> None:
    waits, client = LongWaits(0.05, 0.1, 0.01), client_of(endpoint)
    waits.observe(client)
    with lines_logged(3) as lines:
        request = threading.Thread(target=refused, args=(client.get_object,), kwargs={"Bucket": "b", "Key": "x/y"})
        request.start()
        assert lines.enough.wait(20)
        Hanging.released.set()
        request.join()
    wording.matches("store_waits", lines.lines[0], replace={r"for \d+ s": "for {time} s"})
    assert not waits._waiting and "secret" not in str(lines.lines)


def test_a_listing_is_logged_with_its_prefix(endpoint: str) -> None:
    waits, client = LongWaits(0.05, 0.1, 0.01), client_of(endpoint)
    waits.observe(client)
    with lines_logged(1) as lines:
        request = threading.Thread(
            target=refused, args=(client.list_objects_v2,), kwargs={"Bucket": "b", "Prefix": "jobs/"}
        )
        request.start()
        assert lines.enough.wait(20)
        Hanging.released.set()
        request.join()
    wording.matches("store_waits", lines.lines[0], replace={r"for \d+ s": "for {time} s"})


def test_a_stalled_body_is_logged(endpoint: str) -> None:
    waits, client = LongWaits(0.05, 0.1, 0.01), client_of(endpoint)
    waits.observe(client)
    bodies: list[bytes] = []
    reply = client.get_object(Bucket="b", Key="half")  # has begun, so only the wait for its body is logged

    def read() -> None:
        with waits.reading_body("s3://b/half"):
            bodies.append(reply["Body"].read())

    with lines_logged(1) as lines:
        reading = threading.Thread(target=read)
        reading.start()
        assert lines.enough.wait(20)
        Hanging.released.set()
        reading.join()
    assert bodies == [b"abcd"] and "the rest of s3://b/half" in lines.lines[0]


def test_a_request_that_a_signal_interrupted_is_not_logged() -> None:
    """Airflow stops a task with an exception in the middle of a request. The library then sends no further event."""
    waits = LongWaits(0.01, 0.01, 60)
    waits._begin("GetObject", "http://store/b/x")
    with lines_logged(1) as lines:
        threading.Event().wait(0.02)
        waits._log_due()
    assert not waits._waiting and not lines.lines
