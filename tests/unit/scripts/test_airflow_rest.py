"""The REST client of the demo and the end-to-end tests, against a real server that fails as Airflow does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from scripts.airflow_rest import AirflowRest


class Failing(ThreadingHTTPServer):
    """Answers the first requests below /api/v2 with the given status, 0: not at all, and all after them with 200."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.asked: list[str] = []
        self.bodies: list[bytes] = []


class _Handler(BaseHTTPRequestHandler):
    server: Failing

    def answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = 200
        if self.path.startswith("/api/v2"):
            self.server.asked.append(self.command)
            self.server.bodies.append(sent)
            status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 0:
            self.close_connection = True
            return
        body = json.dumps({"access_token": "t", "reason": "Database error"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def asking(*statuses: int) -> Iterator[tuple[Failing, AirflowRest]]:
    with Failing(*statuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        rest = AirflowRest(f"http://127.0.0.1:{server.server_port}", "admin", "secret")
        try:
            yield server, rest
        finally:
            rest.close()
            server.shutdown()
            thread.join()


def test_what_may_be_sent_twice_is_sent_again_when_the_server_failed() -> None:
    with asking(500, 0, 503) as (server, rest):
        rest.request("PATCH", "/pools/steps", json={"slots": 1})
        assert server.asked == ["PATCH", "PATCH", "PATCH", "PATCH"]


def test_a_run_is_triggered_once_however_often_the_server_fails() -> None:
    """Each attempt sends the same run id, so a run that a failed attempt has created is a conflict."""
    with asking(500, 0, 409) as (server, rest):
        run_id = rest.trigger("job__epoch")
        assert server.asked == ["POST", "POST", "POST"]
        assert {json.loads(body)["dag_run_id"] for body in server.bodies} == {run_id}


def test_a_run_whose_id_is_taken_is_refused() -> None:
    with asking(409) as (server, rest):
        with pytest.raises(httpx.HTTPStatusError, match=r"POST /dags/job__epoch/dagRuns: 409"):
            rest.trigger("job__epoch")
        assert server.asked == ["POST"]


def test_a_wrong_request_is_refused_immediately() -> None:
    with asking(404) as (server, rest):
        with pytest.raises(httpx.HTTPStatusError, match="404"):
            rest.request("GET", "/dags/none")
        assert server.asked == ["GET"]
