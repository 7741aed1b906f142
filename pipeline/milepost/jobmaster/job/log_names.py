"""Decide the names under which the logs of landed sources are stored (L9).

A log stays where it began if its source is renamed. Example: the newest checkpoint has read `clicks`, and the spec has
`events: {renamed_from: clicks}`. Then the log of `events` is stored under `landed/clicks/`, and the next checkpoint
records that. Another source of the spec may not be called `clicks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from milepost.epoch import CheckpointMetadata
from milepost.errors import InvalidRequest, NotFound, StateCorrupt
from milepost.jobspec.job import JobSpec
from milepost.protocol.records import LANDED_PREFIX, CheckpointFailureReason, CompletedCheckpoint, ManifestState


def current_log_names(
    spec: JobSpec,
    read_state: Callable[[], ManifestState],
    read_metadata: Callable[[CompletedCheckpoint], CheckpointMetadata],
) -> dict[str, str]:
    """Return `log_names` by the newest retained checkpoint that can be read.

    Args:
        read_state: raises NotFound: the job has never run.
    """
    checkpoints: tuple[CompletedCheckpoint, ...] = ()
    with suppress(NotFound):
        checkpoints = read_state().checkpoints
    for checkpoint in sorted(checkpoints, key=lambda item: item.checkpoint_id, reverse=True):
        with suppress(NotFound, StateCorrupt):
            return log_names(spec, read_metadata(checkpoint))
    return log_names(spec, None)


def log_names(spec: JobSpec, newest: CheckpointMetadata | None) -> dict[str, str]:
    """Return the name under which the log of each landed source is stored, also of sources that the spec has dropped.

    Args:
        newest: metadata of the newest retained checkpoint, of any timeline; None: there is none.
    """
    recorded: dict[str, str] = {}
    for name, item in newest.sources.items() if newest is not None else ():
        if item.position is not None or item.stored_as is not None:
            recorded[name] = item.stored_as or name
    names = {name: log for name, log in recorded.items() if name not in spec.landed}
    for name, source in spec.landed.items():
        former = None if name in recorded else source.renamed_from
        names[name] = recorded.get(name, name) if former is None else names.pop(former, former)
    return names


def log_owner(source: str, names: Mapping[str, str]) -> str | None:
    """Return the other source whose log is stored under the name that this source would have; None: there is none.

    Args:
        names: from `log_names`.
    """
    return next((other for other, log in names.items() if log == names.get(source) and other != source), None)


def require_own_log_name(spec: JobSpec, source: str, names: Mapping[str, str]) -> str:
    """Return the name under which a source's log is stored.

    Raises: InvalidRequest: a source of the spec has the name under which the log of another one is stored.
    """
    log, other = names.get(source, source), log_owner(source, names)
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
