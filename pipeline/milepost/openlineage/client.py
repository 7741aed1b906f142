"""OpenLineage client, which sends events by the transport in OpenLineage's own configuration."""

from __future__ import annotations

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent

from milepost.openlineage.settings import LineageSettings

__all__ = ["OpenLineageClient", "RunEvent", "open_client"]


def open_client(settings: LineageSettings) -> OpenLineageClient:
    """Return a client. Raises the client's own errors for an unusable configuration."""
    return OpenLineageClient(config=None if settings.config is None else dict(settings.config))
