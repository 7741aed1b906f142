"""The state machine of a barrier handler as data: per state and event, the steps and the next state.

The handler executes only these rows (`docs/reference/protocol-tables.md` shows them). For a state and an event the
first row whose condition holds applies. A handler that only aligns uses two states; one that may change from aligned
to unaligned uses the other four.

With two channels and no timeout, the aligned handler goes through::

    waiting for first   barrier on 0    block 0                           -> collecting
    collecting          barrier on 1    block 1, trigger, unblock all     -> waiting for first

Source: Flink's BarrierHandlerState and its six implementations. At-least-once and strictly unaligned handlers do not
exist here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from milepost.errors import ProtocolViolation


class AlignmentState(Enum):
    """State of a handler. The value is its name in the documentation."""

    WAITING_FOR_FIRST = "waiting for first"
    COLLECTING = "collecting"
    ALTERNATING_WAITING_FOR_FIRST = "alternating, waiting for first"
    ALTERNATING_COLLECTING = "alternating, collecting"
    FIRST_UNALIGNED = "waiting for first, unaligned"
    COLLECTING_UNALIGNED = "collecting, unaligned"


class AlignmentEvent(Enum):
    """Events of the checkpoint that a handler works on."""

    BARRIER = "barrier"
    TIMEOUT = "aligned timeout"
    ANNOUNCEMENT = "announcement"
    ABORT = "abort"
    END_OF_PARTITION = "end of partition"


class Condition(Enum):
    """When a row applies."""

    ALWAYS = ""
    UNALIGNED = "the barrier is unaligned"
    NOT_TIMEOUTABLE = "the barrier has no timeout"
    ALL_RECEIVED = "every channel is there"
    TIMED_OUT = "the timeout has passed"


class Step(Enum):
    """One step of a row.

    BLOCK: its channel, unless the barrier is unaligned. START_RECORDING: every open channel that is not blocked.
    RESET: drop announcements; no channel may still be blocked or recording.
    """

    NOTE_ANNOUNCEMENT = "note the announcement"
    PRIORITISE_CHANNEL = "prioritise"
    PRIORITISE_ANNOUNCED = "prioritise announced"
    BLOCK = "block"
    FINISH_CHANNEL = "drop its channel"
    AS_UNALIGNED = "turn unaligned"
    INIT_INPUTS = "init inputs"
    START_RECORDING = "start recording"
    TRIGGER = "trigger"
    STOP_RECORDING_CHANNEL = "stop recording its channel"
    STOP_RECORDING = "stop recording all"
    UNBLOCK_ALL = "unblock all"
    RESET = "reset"
    DELEGATE = "continue as in the next state"


@dataclass(frozen=True, slots=True)
class AlignmentRule:
    """In `state`, `event` executes `steps` and leads to `after` if `when` holds. `after` None: the event is refused."""

    state: AlignmentState
    event: AlignmentEvent
    when: Condition
    steps: tuple[Step, ...]
    after: AlignmentState | None


_WAITING = AlignmentState.WAITING_FOR_FIRST
_COLLECTING = AlignmentState.COLLECTING
_ALT_WAITING = AlignmentState.ALTERNATING_WAITING_FOR_FIRST
_ALT_COLLECTING = AlignmentState.ALTERNATING_COLLECTING
_FIRST_UNALIGNED = AlignmentState.FIRST_UNALIGNED
_UNALIGNED = AlignmentState.COLLECTING_UNALIGNED

_FREE = (Step.UNBLOCK_ALL, Step.RESET)
_ALIGNED_DONE = (Step.TRIGGER, *_FREE)
_ALTERNATING_DONE = (Step.INIT_INPUTS, Step.TRIGGER, *_FREE)
_UNALIGNED_DONE = (Step.STOP_RECORDING, *_FREE)
_CUT = (Step.INIT_INPUTS, Step.START_RECORDING, Step.TRIGGER)
"""The cut of an unaligned checkpoint: unread buffers are channel state, and the snapshot includes what was read."""


def _rules_of(
    event: AlignmentEvent, *rows: tuple[AlignmentState, Condition, tuple[Step, ...], AlignmentState | None]
) -> tuple[AlignmentRule, ...]:
    return tuple(AlignmentRule(state, event, when, steps, after) for state, when, steps, after in rows)


ALIGNMENT_RULES: tuple[AlignmentRule, ...] = (
    *_rules_of(
        AlignmentEvent.BARRIER,
        (_WAITING, Condition.UNALIGNED, (), None),
        (_WAITING, Condition.ALL_RECEIVED, (Step.BLOCK, *_ALIGNED_DONE), _WAITING),
        (_WAITING, Condition.ALWAYS, (Step.BLOCK,), _COLLECTING),
        (_COLLECTING, Condition.UNALIGNED, (), None),
        (_COLLECTING, Condition.ALL_RECEIVED, (Step.BLOCK, *_ALIGNED_DONE), _WAITING),
        (_COLLECTING, Condition.ALWAYS, (Step.BLOCK,), _COLLECTING),
        (_ALT_WAITING, Condition.UNALIGNED, (Step.PRIORITISE_ANNOUNCED, Step.DELEGATE), _FIRST_UNALIGNED),
        (_ALT_WAITING, Condition.ALL_RECEIVED, (Step.BLOCK, *_ALTERNATING_DONE), _ALT_WAITING),
        (
            _ALT_WAITING,
            Condition.TIMED_OUT,
            (Step.BLOCK, Step.PRIORITISE_ANNOUNCED, Step.AS_UNALIGNED, Step.DELEGATE),
            _FIRST_UNALIGNED,
        ),
        (_ALT_WAITING, Condition.ALWAYS, (Step.BLOCK,), _ALT_COLLECTING),
        (_ALT_COLLECTING, Condition.UNALIGNED, (Step.PRIORITISE_ANNOUNCED, *_CUT, Step.DELEGATE), _UNALIGNED),
        (_ALT_COLLECTING, Condition.ALL_RECEIVED, (Step.BLOCK, *_ALTERNATING_DONE), _ALT_WAITING),
        (
            _ALT_COLLECTING,
            Condition.TIMED_OUT,
            (Step.BLOCK, Step.PRIORITISE_ANNOUNCED, Step.AS_UNALIGNED, *_CUT, Step.DELEGATE),
            _UNALIGNED,
        ),
        (_ALT_COLLECTING, Condition.ALWAYS, (Step.BLOCK,), _ALT_COLLECTING),
        (
            _FIRST_UNALIGNED,
            Condition.ALL_RECEIVED,
            (Step.BLOCK, Step.AS_UNALIGNED, *_CUT, *_UNALIGNED_DONE),
            _ALT_WAITING,
        ),
        (
            _FIRST_UNALIGNED,
            Condition.ALWAYS,
            (Step.BLOCK, Step.AS_UNALIGNED, *_CUT, Step.STOP_RECORDING_CHANNEL),
            _UNALIGNED,
        ),
        (_UNALIGNED, Condition.ALL_RECEIVED, (Step.BLOCK, *_UNALIGNED_DONE), _ALT_WAITING),
        (_UNALIGNED, Condition.ALWAYS, (Step.BLOCK, Step.STOP_RECORDING_CHANNEL), _UNALIGNED),
    ),
    *_rules_of(
        AlignmentEvent.TIMEOUT,
        (_WAITING, Condition.ALWAYS, (), None),
        (_COLLECTING, Condition.ALWAYS, (), None),
        (_ALT_WAITING, Condition.NOT_TIMEOUTABLE, (), None),
        (_ALT_WAITING, Condition.ALWAYS, (Step.PRIORITISE_ANNOUNCED,), _FIRST_UNALIGNED),
        (_ALT_COLLECTING, Condition.NOT_TIMEOUTABLE, (), None),
        (_ALT_COLLECTING, Condition.ALWAYS, (Step.PRIORITISE_ANNOUNCED, Step.AS_UNALIGNED, *_CUT), _UNALIGNED),
        (_FIRST_UNALIGNED, Condition.ALWAYS, (), _FIRST_UNALIGNED),
        (_UNALIGNED, Condition.ALWAYS, (), _UNALIGNED),
    ),
    *_rules_of(
        AlignmentEvent.ANNOUNCEMENT,
        (_WAITING, Condition.ALWAYS, (), _WAITING),
        (_COLLECTING, Condition.ALWAYS, (), _COLLECTING),
        (_ALT_WAITING, Condition.ALWAYS, (Step.NOTE_ANNOUNCEMENT,), _ALT_WAITING),
        (_ALT_COLLECTING, Condition.ALWAYS, (Step.NOTE_ANNOUNCEMENT,), _ALT_COLLECTING),
        (_FIRST_UNALIGNED, Condition.ALWAYS, (Step.PRIORITISE_CHANNEL,), _FIRST_UNALIGNED),
        (_UNALIGNED, Condition.ALWAYS, (Step.PRIORITISE_CHANNEL,), _UNALIGNED),
    ),
    *_rules_of(
        AlignmentEvent.ABORT,
        (_WAITING, Condition.ALWAYS, _FREE, _WAITING),
        (_COLLECTING, Condition.ALWAYS, _FREE, _WAITING),
        (_ALT_WAITING, Condition.ALWAYS, _FREE, _ALT_WAITING),
        (_ALT_COLLECTING, Condition.ALWAYS, _FREE, _ALT_WAITING),
        (_FIRST_UNALIGNED, Condition.ALWAYS, _FREE, _ALT_WAITING),
        (_UNALIGNED, Condition.ALWAYS, _UNALIGNED_DONE, _ALT_WAITING),
    ),
    *_rules_of(
        AlignmentEvent.END_OF_PARTITION,
        (_WAITING, Condition.ALWAYS, (Step.FINISH_CHANNEL,), _WAITING),
        (_COLLECTING, Condition.ALL_RECEIVED, (Step.FINISH_CHANNEL, *_ALIGNED_DONE), _WAITING),
        (_COLLECTING, Condition.ALWAYS, (Step.FINISH_CHANNEL,), _COLLECTING),
        (_ALT_WAITING, Condition.ALWAYS, (Step.FINISH_CHANNEL,), _ALT_WAITING),
        (_ALT_COLLECTING, Condition.ALL_RECEIVED, (Step.FINISH_CHANNEL, *_ALTERNATING_DONE), _ALT_WAITING),
        (
            _ALT_COLLECTING,
            Condition.TIMED_OUT,
            (Step.FINISH_CHANNEL, Step.PRIORITISE_ANNOUNCED, Step.AS_UNALIGNED, *_CUT, Step.DELEGATE),
            _UNALIGNED,
        ),
        (_ALT_COLLECTING, Condition.ALWAYS, (Step.FINISH_CHANNEL,), _ALT_COLLECTING),
        (_FIRST_UNALIGNED, Condition.ALWAYS, (Step.FINISH_CHANNEL,), _FIRST_UNALIGNED),
        (_UNALIGNED, Condition.ALL_RECEIVED, (Step.FINISH_CHANNEL, *_UNALIGNED_DONE), _ALT_WAITING),
        (_UNALIGNED, Condition.ALWAYS, (Step.FINISH_CHANNEL, Step.STOP_RECORDING_CHANNEL), _UNALIGNED),
    ),
)


_BY_STATE_AND_EVENT = {
    (state, event): tuple(rule for rule in ALIGNMENT_RULES if rule.state is state and rule.event is event)
    for state in AlignmentState
    for event in AlignmentEvent
}


def transition(
    state: AlignmentState, event: AlignmentEvent, holding: Collection[Condition]
) -> tuple[tuple[Step, ...], AlignmentState]:
    """Return the steps and the next state of the first row whose condition holds.

    Raises:
        ProtocolViolation: that row refuses the event.
    """
    rule = next(rule for rule in _BY_STATE_AND_EVENT[state, event] if rule.when in holding)
    if rule.after is None:
        cause = f", because {rule.when.value}" if rule.when.value else ""
        raise ProtocolViolation(f"{event.value} refused in state '{state.value}'{cause}. Nothing was changed.")
    return rule.steps, rule.after
