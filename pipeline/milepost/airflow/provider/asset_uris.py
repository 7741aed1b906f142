"""Asset URIs of sinks: their location, or `milepost://job/sink`.

A sink whose path is a plain URI has that URI as its asset, as in other tools. The scheme `milepost` is for a path with
a `${env:…}`, which may contain a secret.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from milepost.language import check_job_name, check_sink_name

if TYPE_CHECKING:
    from milepost.jobspec.load import LoadedJob

_ASSET_URI = re.compile(r"(?:s3|file)://[^${}]+")


def sink_assets(job: LoadedJob) -> dict[str, str]:
    """Return the asset URI of every sink: its location, or `milepost://job/sink` if that is not a plain URI."""
    assets = {}
    for sink in job.spec.sinks:
        # Unresolved on purpose: a URI that Airflow shows must not contain a value from the environment.
        location = "" if sink.path is None else sink.path if "${" in sink.path else job.url(sink.path)
        plain = _ASSET_URI.fullmatch(location) is not None
        assets[sink.name] = location if plain else f"milepost://{job.spec.name}/{sink.name}"
    return assets


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the URI if it names a sink of a job. Raises ValueError otherwise."""
    job, sink = uri.netloc, uri.path.removeprefix("/")
    try:
        check_job_name(job)
        check_sink_name(sink)
    except ValueError as problem:
        raise ValueError(f"expected milepost://job/sink, got {uri.geturl()!r}: {problem}") from None
    if uri.query:
        raise ValueError(f"expected milepost://job/sink without a query, got {uri.geturl()!r}")
    return uri
