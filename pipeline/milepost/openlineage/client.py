"""The client sends events by the transport that OpenLineage's own files and variables name."""

from __future__ import annotations

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent

from milepost.openlineage.settings import LineageSettings

__all__ = ["OpenLineageClient", "RunEvent", "open_client"]


def open_client(settings: LineageSettings) -> OpenLineageClient:
    """Return a client. Raises what it does of a configuration that cannot be used."""
    return OpenLineageClient(config=None if settings.config is None else dict(settings.config))
