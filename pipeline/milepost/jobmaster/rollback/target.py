"""Resolve the target checkpoint of a rollback."""

from __future__ import annotations

from milepost.epoch import iso_ms
from milepost.errors import InvalidRequest, NotFound
from milepost.language.times import parse_timestamp
from milepost.protocol.records import NO_CHECKPOINT, CheckpointId, ManifestState
from milepost.protocol.retention import timeline_ancestry

_CLOCK_SKEW_MS = 60_000
"""How far a person's clock may be ahead of the store's clock. A wrong UTC offset is a larger difference."""


def resolve_target(state: ManifestState, to: str | int, now_ms: int) -> CheckpointId:
    """Return the checkpoint that a person names: by its id, 0 for the empty state, or by a time.

    A time (ISO 8601, UTC if it has no offset) means the newest retained checkpoint of the live timeline and its
    ancestors that was triggered at or before it. If 3, 4 and 5 were triggered at 06:00, 07:00 and 08:00, then "07:30"
    of that day means 4.

    Args:
        now_ms: the store's clock.
    Raises:
        InvalidRequest: neither an id nor a time, or a time in the future. NotFound: no such checkpoint is retained.
    """
    text = str(to).strip()
    if text.isdecimal():
        return require_retained(state, int(text))
    try:
        moment = parse_timestamp(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is neither a checkpoint id nor a time: expected a number, or ISO 8601 as in 2026-07-14T06:00. "
            "Nothing was changed."
        ) from None
    at_ms = moment.timestamp() * 1000
    if at_ms > now_ms + _CLOCK_SKEW_MS:
        raise InvalidRequest(
            f"{moment.isoformat()} is in the future: it is {iso_ms(now_ms)} now. Nothing was changed.",
            hint="give a time with its offset, as in 2026-07-14T08:00+02:00",
        )
    live = timeline_ancestry(state, state.timeline())
    fitting = [checkpoint for checkpoint in live if checkpoint.trigger_time_ms <= at_ms]
    if not fitting:
        oldest = (
            f"the oldest is {live[0].checkpoint_id} of {iso_ms(live[0].trigger_time_ms)}" if live else "it has none"
        )
        raise NotFound(
            f"job {state.job} retains no checkpoint of its live timeline that was triggered at or before {text}; "
            f"{oldest}. Nothing was changed.",
            hint="a rollback may also go to 0, the empty state",
        )
    return fitting[-1].checkpoint_id


def require_retained(state: ManifestState, requested: int) -> CheckpointId:
    """Return a retained checkpoint, or 0 for the empty state. Raises NotFound: it is not retained."""
    if requested == NO_CHECKPOINT or state.checkpoint(CheckpointId(requested)) is not None:
        return CheckpointId(requested)
    retained = [int(checkpoint.checkpoint_id) for checkpoint in state.checkpoints]
    nearest = min(retained, key=lambda retained_id: (abs(retained_id - requested), retained_id), default=None)
    raise NotFound(
        f"job {state.job} retains no completed checkpoint {requested}; retained: "
        f"{', '.join(map(str, retained)) or 'none'}. Nothing was changed.",
        hint="0 is the empty state"
        if nearest is None
        else f"the nearest one is {nearest}; 0 is the empty state: milepost rollback {state.job} --to {nearest} "
        "--dry-run",
        checkpoint_id=requested,
        retained=retained,
        nearest=nearest,
    )
