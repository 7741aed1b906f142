"""Every interleaving of small settings keeps I1 to I14; each rule broken on purpose is found, with a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from milepost.protocol.manifest import coordinator
from milepost.protocol.manifest.timelines.timelines import realign_sink, rollback
from milepost.protocol.manifest.transaction.answers import Answer, Transition
from milepost.protocol.manifest.transaction.lease import sweep_decision
from milepost.protocol.manifest.upkeep.after_commit import subsume
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import token_prefix_of_key
from milepost.protocol.records.manifest_state import JobStatus, ManifestState
from milepost.protocol.retention.retention import subsumable
from milepost_testkit.interleavings.model_explorer import Explored, Explorer
from milepost_testkit.interleavings.model_rules import Rules, Setting
from milepost_testkit.interleavings.model_switch import SwitchExplorer, SwitchRules

TWO_LEADERS = Setting()
ONE_AFTER_ANOTHER = Setting(leaders=("airflow:a", "airflow:b", "airflow:c"), polite=True, faults=0, in_turn=True)
LONG = pytest.mark.deep
"""A walk through some 100,000 states: in every run of the suite are the smaller ones, and all the broken rules."""

SETTINGS = {
    "2 leaders, 2 subtasks, 2 checkpoints, one crash, lost reply or failed subtask anywhere": TWO_LEADERS,
    "2 leaders of which the newcomer respects a living holder, one crash without return": Setting(polite=True),
    "3 leaders, two at a time, none takes over: the third deletes what the second listed": ONE_AFTER_ANOTHER,
    "2 leaders and a person who cancels at any moment": Setting(canceler=True, faults=0),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=LONG if SETTINGS[one] is TWO_LEADERS else ()) for one in SETTINGS]
)
def test_every_interleaving_keeps_every_invariant(name: str, record_property: Callable[[str, object], None]) -> None:
    """I1 to I14 hold in every world, and at each end every row is published once."""
    seen = Explorer(SETTINGS[name]).explore()
    record_property("explored", f"{seen.states:,} states, {seen.transitions:,} transitions, {seen.ends:,} ends: {name}")
    assert seen.trace == (), "\n".join(seen.trace)
    assert seen.ends > 0


def test_a_walk_is_the_same_each_time() -> None:
    """The walk depends on nothing but its setting: a counterexample can be walked again."""
    setting = Setting(polite=True, faults=0)
    assert Explorer(setting).explore() == Explorer(setting).explore() != Explored()


def without_fencing(state: ManifestState, request: Any, now_ms: int) -> Answer:
    """Complete for whatever token the caller holds."""
    timeline = state.timeline()
    if timeline.pending is not None and request.checkpoint_id == timeline.pending.checkpoint_id:
        believed = replace(timeline, pending=replace(timeline.pending, token=request.token))
        state = replace(state, timelines=(believed,))
    return coordinator.complete(state, request, now_ms)


def reusing_ids(state: ManifestState, request: Any, now_ms: int) -> Answer:
    """The next trigger takes the id of an aborted checkpoint."""
    return coordinator.trigger(
        replace(state, next_checkpoint_id=CheckpointId(state.timeline().head + 1)), request, now_ms
    )


def without_a_new_token(state: ManifestState, request: Any, now_ms: int) -> Answer:
    """A rebind keeps the token of the trigger."""
    answer = coordinator.rebind(state, request, now_ms)
    pending = state.timeline().pending
    if isinstance(answer, Transition) and pending is not None:
        kept = replace(answer.event, token=pending.token)  # type: ignore[arg-type]
        return replace(answer, event=kept)
    return answer


def ignoring_the_lease(state: ManifestState, session: Any, facts: Any, now_ms: int) -> Any:
    return sweep_decision(state, session, replace(facts, take_over=True), now_ms)


def ignoring_the_result(state: ManifestState, request: Any, now_ms: int) -> Answer:
    """Trigger in an incarnation that has ended."""
    return coordinator.trigger(replace(state, status=JobStatus.RUNNING, results=()), request, now_ms)


def ignoring_the_sinks(state: ManifestState, *rest: Any) -> Any:
    """Take every checkpoint for published."""
    return replace(state, checkpoints=tuple(replace(one, unconfirmed=()) for one in state.checkpoints)), *rest


def directories_of(kept: Any, dropped: Any) -> tuple[str, ...]:
    """List whole directories, whatever a kept checkpoint carries from them."""
    return tuple(sorted({token_prefix_of_key(key) or key for keys in dropped for key in keys}))


def without_acknowledgements(*_: object) -> None:
    """Take any answers for complete ones."""


BROKEN: dict[str, tuple[Rules, Setting, str]] = {
    "put without a condition": (Rules(conditional_put=False), TWO_LEADERS, "I1"),
    "rebind without a new token": (Rules(rebind=without_a_new_token), TWO_LEADERS, "I3"),
    "complete without the fencing check": (Rules(complete=without_fencing), TWO_LEADERS, "I3"),
    "trigger in an ended incarnation": (
        Rules(trigger=ignoring_the_result),
        Setting(canceler=True, faults=0),
        "I4",
    ),
    "reuse an id": (Rules(trigger=reusing_ids), TWO_LEADERS, "I5"),
    "complete with a missing acknowledgement": (
        Rules(wait_for_answers=False, verify=without_acknowledgements),
        TWO_LEADERS,
        "I7",
    ),
    "complete what a subtask declined": (Rules(verify=without_acknowledgements), TWO_LEADERS, "I7"),
    "subsume before publish": (
        Rules(
            publish_before_subsume=False,
            subsumable=lambda state, policy: subsumable(*ignoring_the_sinks(state, policy)),
            subsume=lambda state, request, now_ms: subsume(*ignoring_the_sinks(state, request, now_ms)),
        ),
        TWO_LEADERS,
        "I8",
    ),
    "delete what is carried": (Rules(unreferenced=directories_of), ONE_AFTER_ANOTHER, "I8"),
    "take over from a living holder": (Rules(sweep=ignoring_the_lease), Setting(polite=True), "I10"),
    "confirm without publishing": (Rules(publish_before_confirm=False), TWO_LEADERS, "I11"),
    "publish before complete": (Rules(publish_before_complete=True), TWO_LEADERS, "I14"),
    "commit without comparing the mark": (Rules(sink_compares=False), TWO_LEADERS, "I14"),
}


TWO_AND_A_PERSON = Setting(faults=0)
SWITCHES = {
    "a person rolls back at any moment, 2 leaders": TWO_AND_A_PERSON,
    "a person rolls back at any moment, 1 leader, one crash or lost reply anywhere": Setting(leaders=("airflow:a",)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=LONG if SWITCHES[one] is TWO_AND_A_PERSON else ()) for one in SWITCHES]
)
def test_no_commit_of_the_old_timeline_lands_after_a_rollback(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """I14: once a sink has followed, nothing older reaches its table; and at each end it holds the live lineage."""
    seen = SwitchExplorer(SWITCHES[name]).explore()
    record_property("explored", f"{seen.states:,} states, {seen.transitions:,} transitions, {seen.ends:,} ends: {name}")
    assert seen.trace == (), "\n".join(seen.trace)
    assert seen.ends > 0


def before_the_sinks_have_followed(state: ManifestState, request: Any, now_ms: int) -> Answer:
    """Trigger while a sink has yet to follow."""
    return coordinator.trigger(replace(state, reconciliation=None), request, now_ms)


def without_telling_the_sinks(state: ManifestState, request: Any, now_ms: int) -> Answer:
    return rollback(state, replace(request, sinks=()), now_ms)


BROKEN_SWITCHES: dict[str, SwitchRules] = {
    "commit under a lower number than the table carries": SwitchRules(compare_numbers=False),
    "write no new head where nothing is to be undone": SwitchRules(follow_when_nothing_changes=False),
    "follow whatever switch comes": SwitchRules(compare_decisions=False),
    "trigger before the sinks have followed": SwitchRules(trigger=before_the_sinks_have_followed),
    "tell no sink of the switch": SwitchRules(rollback=without_telling_the_sinks),
}


@pytest.mark.parametrize("name", BROKEN_SWITCHES)
def test_a_broken_switch_has_a_counterexample(name: str) -> None:
    """Each part of the contract of a table is needed: without it some order of steps leaves a wrong table."""
    seen = SwitchExplorer(Setting(faults=0, in_turn=True), BROKEN_SWITCHES[name]).explore()
    assert seen.trace, f"{name}: no counterexample in {seen.states} states"
    assert seen.trace[-1].startswith("I14"), "\n".join(seen.trace)


MENDED = {
    "somebody moves the table and realigns it, 2 leaders": TWO_AND_A_PERSON,
    "somebody moves the table and realigns it, 1 leader, one crash or lost reply anywhere": Setting(
        leaders=("airflow:a",)
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=LONG if MENDED[one] is TWO_AND_A_PERSON else ()) for one in MENDED]
)
def test_a_moved_table_is_realigned(name: str, record_property: Callable[[str, object], None]) -> None:
    """I14: no matter who works on the job meanwhile, at each end it shows the head, and nothing is owed."""
    seen = SwitchExplorer(MENDED[name], mends=True).explore()
    record_property("explored", f"{seen.states:,} states, {seen.transitions:,} transitions, {seen.ends:,} ends: {name}")
    assert seen.trace == (), "\n".join(seen.trace)
    assert seen.ends > 0


def without_overruling(state: ManifestState, request: Any, now_ms: int) -> Answer:
    """A realignment that is a switch like any other."""
    answer = realign_sink(state, request, now_ms)
    assert isinstance(answer, Transition) and answer.state.reconciliation is not None
    due = replace(answer.state.reconciliation, realigned=())
    return replace(answer, state=replace(answer.state, reconciliation=due))


BROKEN_REALIGNMENTS: dict[str, SwitchRules] = {
    "follow only from what is known": SwitchRules(realign=without_overruling),
    "trigger before the table is realigned": SwitchRules(trigger=before_the_sinks_have_followed),
}


@pytest.mark.parametrize("name", BROKEN_REALIGNMENTS)
def test_a_broken_realignment_has_a_counterexample(name: str) -> None:
    seen = SwitchExplorer(Setting(faults=0), BROKEN_REALIGNMENTS[name], mends=True).explore()
    assert seen.trace, f"{name}: no counterexample in {seen.states} states"
    assert seen.trace[-1].startswith("I14"), "\n".join(seen.trace)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_has_a_counterexample(name: str) -> None:
    """The walk notices: it ends with a trace from the first step to the invariant that does not hold."""
    rules, setting, invariant = BROKEN[name]
    seen = Explorer(setting, rules).explore()
    assert seen.trace, f"{name}: no counterexample in {seen.states} states"
    assert len(seen.trace) > 1
    assert seen.trace[-1].startswith(invariant), "\n".join(seen.trace)
