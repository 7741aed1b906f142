"""Validate the asset URIs of sinks without a plain URI: `milepost://job/sink`.

A sink whose path is a plain URI has that URI as its asset, as in other tools. This scheme is for a path with a
`${env:…}`, which may contain a secret.
"""

from __future__ import annotations

from urllib.parse import SplitResult

from milepost.language import check_job_name, check_sink_name


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
