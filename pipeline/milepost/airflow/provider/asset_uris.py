"""The URIs of assets that have no location of their own: `milepost://job/sink`.

A sink whose path is a plain URI is the asset of that URI, as any other tool names it; this one is for a path with a
`${env:…}` in it, which may hold a secret.
"""

from __future__ import annotations

from urllib.parse import SplitResult

from milepost.jobspec.values.names import check_job_name, check_sink_name


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the parts of an asset's URI. Raises ValueError: they name no sink of a job."""
    job, sink = uri.netloc, uri.path.removeprefix("/")
    try:
        check_job_name(job)
        check_sink_name(sink)
    except ValueError as problem:
        raise ValueError(f"expected milepost://job/sink, got {uri.geturl()!r}: {problem}") from None
    if uri.query:
        raise ValueError(f"expected milepost://job/sink without a query, got {uri.geturl()!r}")
    return uri
