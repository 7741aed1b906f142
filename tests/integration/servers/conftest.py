"""What tests of requests to an S3 server share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.servers.s3_servers import Ministack


@pytest.fixture
def proxy(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingProxy]:
    """Stands before the server, whose credentials this process has."""
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    with RecordingProxy(ministack.port) as proxy:
        yield proxy
