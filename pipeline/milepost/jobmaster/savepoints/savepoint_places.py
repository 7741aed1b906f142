"""Refuse savepoint locations where the copied objects would be mistaken for something else.

In the job's own storage or in the folder of a table they would be foreign objects. Where a source looks for input, the
copied tables would be read as new data.
"""

from __future__ import annotations

from collections.abc import Iterable

from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records import ObjectStore
from milepost.sources.planning import matches


def require_outside(context: JobContext, root: ObjectStore) -> None:
    """Raise InvalidRequest if the location is in the job's own storage or in a table of its sinks."""
    places = {"the job's own storage": context.store_config.url}
    places |= {f"the table of sink {sink.name}": context.sink_config(sink.name).url for sink in context.spec.sinks}
    for what, url in places.items():
        if _below(root.config.url, url) is not None:
            raise InvalidRequest(
                f"job {context.spec.name}: a copy at {root.config.url} refused: it would be in {what}, {url}. Nothing "
                "was written.",
                hint="name a location outside of it",
            )


def require_unread(context: JobContext, root: ObjectStore, keys: Iterable[str]) -> None:
    """Raise InvalidRequest if a source of the job would read an object of the copy as input."""
    for name in context.spec.files:
        config, pattern = context.source(name)
        below = _below(root.config.url, config.url)
        if below is not None and any(matches(pattern, f"{below}{key}") for key in keys):
            raise InvalidRequest(
                f"job {context.spec.name}: a copy at {root.config.url} refused: source {name} would read it as "
                "new input. Nothing was written.",
                hint="name a location that no source reads",
                source=name,
            )


def _below(url: str, root: str) -> str | None:
    """Return the path of a URL below a root, ending in ``/`` or empty; None if it is not below it.

    Below ``s3://lake/a`` the URL ``s3://lake/a/b`` is ``b/``, and ``s3://lake/ab`` is None.
    """
    inside = f"{url.rstrip('/')}/"
    outside = f"{root.rstrip('/')}/"
    return inside.removeprefix(outside) if inside.startswith(outside) else None
