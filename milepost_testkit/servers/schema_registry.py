"""A Confluent-style schema registry on loopback: what landings ask of one, and no more."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Registry:
    """The server's schemas, and how it answers.

    Attributes:
        schemas: by id, as the API returns them. versions: the same by subject and version.
        serialized: its form of a schema's text if a request has `format=serialized`.
        login: user and password; None: everybody may read.
        failure: status of all answers; None: it works.
        asked: paths that were requested.
    """

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: dict[tuple[str, int], int] = field(default_factory=dict)
    serialized: dict[str, str] = field(default_factory=dict)
    login: tuple[str, str] | None = None
    failure: int | None = None
    asked: list[str] = field(default_factory=list)

    def register(self, schema_id: int, schema: Any, subject: str = "", version: int = 1, **fields: Any) -> None:
        """Add a schema, which is a text or becomes JSON."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[schema_id] = {"schema": text, **fields}
        self.versions[subject, version] = schema_id

    def answer(self, target: str, authorization: str | None) -> tuple[int, Any]:
        """Return the status and the content of an answer."""
        self.asked.append(target)
        parts = urlsplit(target)
        if self.failure is not None:
            return self.failure, {"error_code": self.failure, "message": "it fails"}
        if self.login is not None:
            token = base64.b64encode(":".join(self.login).encode()).decode()
            if authorization != f"Basic {token}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        match parts.path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
            case ["subjects", subject, "versions", version]:
                found = self.schemas.get(self.versions.get((unquote(subject), int(version)), 0))
            case _:
                return 404, "<html>not here</html>"
        if found is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if parse_qs(parts.query).get("format") == ["serialized"]:
            found = {**found, "schema": self.serialized[found["schema"]]}
        return 200, found


@contextmanager
def schema_registry() -> Iterator[Registry]:
    """Run a registry."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = registry.answer(self.path, self.headers.get("Authorization"))
            body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
