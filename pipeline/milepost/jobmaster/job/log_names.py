"""Decide the names under which the logs of landed sources are stored (L9).

A log stays where it began if its source is renamed. Example: the newest checkpoint has read `clicks`, and the spec has
`events: {renamed_from: clicks}`. Then the log of `events` is stored under `landed/clicks/`, and the next checkpoint
records that. Another source of the spec may not be called `clicks`.

Older checkpoints have former names. Example: `events` was renamed to `taps`, and then the spec was reverted. The newest
checkpoint has `taps`, and an older one has `events`, stored as `clicks`. The log is that of `events` again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest, NotFound, StateCorrupt
from milepost.jobspec.job import JobSpec
from milepost.protocol.records import LANDED_PREFIX, CheckpointFailureReason, CompletedCheckpoint, ManifestState


def current_log_names(
    spec: JobSpec,
    read_state: Callable[[], ManifestState],
    read_metadata: Callable[[CompletedCheckpoint], CheckpointMetadata],
    restored: CheckpointMetadata | None = None,
) -> dict[str, str]:
    """Return `log_names` by the retained checkpoints that can be read.

    Args:
        read_state: raises NotFound: the job has never run. restored: of a savepoint, of this job or another one.
    """

    def retained() -> Iterator[CheckpointMetadata]:
        checkpoints: tuple[CompletedCheckpoint, ...] = ()
        with suppress(NotFound):
            checkpoints = read_state().checkpoints
        for checkpoint in sorted(checkpoints, key=lambda item: item.checkpoint_id, reverse=True):
            with suppress(NotFound, StateCorrupt):
                yield read_metadata(checkpoint)

    return log_names(spec, retained(), restored)


def log_names(
    spec: JobSpec, newest_first: Iterable[CheckpointMetadata], restored: CheckpointMetadata | None = None
) -> dict[str, str]:
    """Return the name under which the log of each landed source is stored, also of sources that the spec has dropped.

    A source has the log of its name or else of its `renamed_from` in the newest checkpoint that has either. Older
    checkpoints are read only while the newest one has a log that no source of the spec reads.

    Args:
        newest_first: metadata of retained checkpoints, of all timelines. restored: considered after them.
    """
    names: dict[str, str] = {}
    dropped: dict[str, str] | None = None
    for metadata in newest_first:
        _assign(spec, names, metadata)
        if dropped is None:
            dropped = {name: log for name, log in _recorded(metadata).items() if name not in spec.landed}
        if len(names) == len(spec.landed) or {*dropped.values()} <= {*names.values()}:
            break
    if restored is not None:
        _assign(spec, names, restored)
    for name, source in spec.landed.items():
        names.setdefault(name, source.renamed_from or name)
    taken = {*names.values()}
    return {name: log for name, log in (dropped or {}).items() if log not in taken} | names


def _recorded(metadata: CheckpointMetadata) -> dict[str, str]:
    return {
        name: item.stored_as or name
        for name, item in metadata.sources.items()
        if item.position is not None or item.stored_as is not None
    }


def _assign(spec: JobSpec, names: dict[str, str], metadata: CheckpointMetadata) -> None:
    """Add the logs that a checkpoint has for sources without one. No two sources get the same log."""
    recorded = _recorded(metadata)
    own = [(name, name) for name in spec.landed]
    former = [(name, source.renamed_from) for name, source in spec.landed.items() if source.renamed_from is not None]
    for name, recorded_name in (*own, *former):
        log = recorded.get(recorded_name)
        if log is not None and name not in names and log not in names.values():
            names[name] = log
    for name, source in spec.landed.items():
        if source.renamed_from is None and name in metadata.sources:  # an epoch ran before anything was landed
            names.setdefault(name, name)


def log_owner(source: str, names: Mapping[str, str]) -> str | None:
    """Return the other source with a log under the name that this source would have; None: there is none.

    Args:
        names: from `log_names`.
    """
    return next((other for other, log in names.items() if log == names.get(source) and other != source), None)


def require_own_log_name(spec: JobSpec, source: str, names: Mapping[str, str]) -> str:
    """Return the name under which a source's log is stored.

    Raises: InvalidRequest: a source of the spec has the name under which the log of another one is stored, or has a
        `renamed_from` and the name of one that has left the spec.
    """
    log, other = names.get(source, source), log_owner(source, names)
    former = spec.landed[source].renamed_from if source in spec.landed else None
    if former is not None and names.get(former, log) != log:  # both have a log: `renamed_from` would be ignored
        raise InvalidRequest(
            f"job {spec.name}: source {source} cannot be `renamed_from: {former}`: {LANDED_PREFIX}{log}/ is the log of "
            f"an earlier source {source}, which has left the spec. Nothing was landed or read.",
            hint=f"give the renamed source another name than {source}",
            source=source,
            reason=CheckpointFailureReason.SPEC_REFUSED.value,
        )
    if other is None:
        return log
    new, owner = (source, other) if source == log else (other, source)
    raise InvalidRequest(
        f"job {spec.name}: source {new} cannot have this name: {LANDED_PREFIX}{log}/ is the log of source {owner}, "
        "which was renamed. Nothing was landed or read.",
        hint=f"give source {new} another name in the spec",
        source=new,
        reason=CheckpointFailureReason.SPEC_REFUSED.value,
    )
