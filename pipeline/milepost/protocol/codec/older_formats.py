"""Older formats of a manifest entry, each brought to the next one: a log outlives the code that wrote it.

What a format did not have is added as what it meant then; what it cannot have had is refused, for an older program did
not write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from milepost.protocol.records.ids import SessionId, session_digest


class NotOfThatFormat(ValueError):
    """The entry holds what its format did not have; the text says what."""


def upgraded(entry: Mapping[str, object], number: int) -> dict[str, object]:
    """Return an entry of format `number` as one of format `number` + 1; what is malformed is left as it is.

    Raises:
        NotOfThatFormat: it holds a newer format's event, or a newer format's key.
    """
    since = _EVENTS_SINCE[number + 1]
    event = entry.get("event")
    if isinstance(event, dict) and event.get("type") in since:
        raise NotOfThatFormat(f"format {number} has no event {event['type']}")
    return _UPGRADES[number](dict(entry))


def _upgraded_1(entry: dict[str, object]) -> dict[str, object]:
    """Format 1 knew neither results nor pins."""
    return entry | _with(entry, "state", lambda state: _added(state, ".state", 1, {"pins": [], "results": []}))


def _upgraded_2(entry: dict[str, object]) -> dict[str, object]:
    """Format 2 had one timeline, which was never left, and no savepoints."""
    return (
        entry
        | _with(entry, "state", _state_of_2)
        | _with(
            entry,
            "event",
            lambda event: event | _with(event, "checkpoint", lambda one: _checkpoint_of_2(one, ".event.checkpoint")),
        )
    )


def _state_of_2(state: dict[str, object]) -> dict[str, object]:
    state = _added(state, ".state", 2, {"realignment": None, "savepoints": []})
    return state | _each(state, "timelines", _timeline_of_2) | _each(state, "checkpoints", _checkpoint_of_2)


def _timeline_of_2(timeline: dict[str, object], where: str) -> dict[str, object]:
    return _added(timeline, where, 2, {"role": "live", "frozen": None})


def _checkpoint_of_2(checkpoint: dict[str, object], where: str) -> dict[str, object]:
    # Without rollback a sink had either confirmed a checkpoint, and then showed it, or was going to.
    return _added(checkpoint, where, 2, {"unpublished": checkpoint.get("unconfirmed")})


def _upgraded_3(entry: dict[str, object]) -> dict[str, object]:
    """Format 3 hashed keys without a secret, listed all garbage in the state, and did not say since when a timeline is
    live: what is no fork, always."""
    return entry | _with(entry, "state", _state_of_3) | _with(entry, "event", _event_of_3)


def _event_of_3(event: dict[str, object]) -> dict[str, object]:
    event = event | _with(event, "timeline", lambda one: _timeline_of_3(one, ".event.timeline"))
    event |= _with(event, "aborted", lambda one: _abort_of_3(one, ".event.aborted"))
    event |= _each(event, "aborted", _abort_of_3, ".event")
    event |= _GARBAGE_SINCE_4.get(str(event.get("type")), {})
    return _abort_of_3(event, ".event") if event.get("type") == "CheckpointAborted" else event


def _abort_of_3(event: dict[str, object], where: str) -> dict[str, object]:
    return _added(event, where, 3, {"veto": None})


_GARBAGE_SINCE_4: dict[str, dict[str, object]] = {
    "CheckpointsSubsumed": {"garbage_list": None},
    "GarbageListed": {"garbage_list": None},
    "GarbageDeleted": {"lists": []},
}


def _state_of_3(state: dict[str, object]) -> dict[str, object]:
    added: dict[str, object] = {"key_hash_secret": None, "garbage_lists": [], "compacted": 0}
    state = _added(state, ".state", 3, added) | _each(state, "timelines", _timeline_of_3)
    for name in ("completed_sessions", "aborted_sessions"):
        sessions = state.get(name)
        if isinstance(sessions, list):
            state[name] = [_session_of_3(session) for session in sessions]
    return state


def _session_of_3(session: object) -> object:
    """Format 3 remembered the whole id."""
    if isinstance(session, list) and session and isinstance(session[0], str):
        return [session_digest(SessionId(session[0])), *session[1:]]
    return session


def _timeline_of_3(timeline: dict[str, object], where: str) -> dict[str, object]:
    return _added(timeline, where, 3, {"live_from": None if timeline.get("role") == "fork" else 0})


def _added(value: dict[str, object], where: str, number: int, added: dict[str, object]) -> dict[str, object]:
    known = sorted(added.keys() & value.keys())
    if known:
        raise NotOfThatFormat(f"{where}: format {number} has no keys {known}")
    return value | added


def _with(
    value: Mapping[str, object], name: str, change: Callable[[dict[str, object]], dict[str, object]]
) -> dict[str, object]:
    """The changed field, to be merged into `value`; nothing when it is not there, or no object."""
    found = value.get(name)
    return {name: change(found)} if isinstance(found, dict) else {}


def _each(
    value: Mapping[str, object],
    name: str,
    older: Callable[[dict[str, object], str], dict[str, object]],
    where: str = ".state",
) -> dict[str, object]:
    """The list of `value` with each of its objects changed; nothing when it is no list."""
    items = value.get(name)
    if not isinstance(items, list):
        return {}
    return {
        name: [
            older(item, f"{where}.{name}[{index}]") if isinstance(item, dict) else item
            for index, item in enumerate(items)
        ]
    }


_UPGRADES: dict[int, Callable[[dict[str, object]], dict[str, object]]] = {
    1: _upgraded_1,
    2: _upgraded_2,
    3: _upgraded_3,
}
_EVENTS_SINCE: dict[int, frozenset[str]] = {
    2: frozenset(
        {
            "JobCanceled",
            "JobFinished",
            "JobCleaned",
            "JobStarted",
            "CheckpointPinned",
            "CheckpointUnpinned",
            "GarbageListed",
        }
    ),
    3: frozenset(
        {
            "TimelineSwitched",
            "TimelineForked",
            "ForkDisposed",
            "TimelineFrozen",
            "TimelineThawed",
            "SinkRealigned",
            "SavepointCreated",
            "SavepointDisposed",
        }
    ),
    4: frozenset({"GarbageFolded", "LogCompacted"}),
}
