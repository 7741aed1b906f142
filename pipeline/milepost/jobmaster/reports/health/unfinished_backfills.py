"""Report the open forks of unfinished backfills."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.fork_event import fork_event
from milepost.jobmaster.job.session import is_provably_alive, is_provably_dead
from milepost.protocol.records import ManifestState, Timeline
from milepost.protocol.retention import open_forks

OPENED_BY = "backfill:"
"""Prefix of the id of a session that opened a fork for a backfill: `backfill:<fingerprint>/<session>`."""


@dataclass(frozen=True, slots=True)
class UnfinishedBackfill:
    """An open fork of a backfill.

    Attributes:
        head, pending: None for none. working: False if its process has provably ended, None if that is unknown.
    """

    fork: str
    fork_point: int
    head: int | None
    pending: int | None
    session_id: str | None
    working: bool | None
    next_step: str


def unfinished_backfills(context: JobContext, state: ManifestState) -> tuple[UnfinishedBackfill, ...]:
    """Return the open forks of backfills, each with its next step."""
    unfinished = []
    for fork, _ in forks_of_backfills(context, state):
        assert fork.parent is not None, "a fork has one"
        leader, point = fork.leader, int(fork.parent[1])
        working = None
        if leader is not None and is_provably_alive(leader.holder):
            working = True
        elif leader is not None and is_provably_dead(leader.holder):
            working = False
        own_head = int(fork.head) if fork.head != fork.parent[1] else None
        job, forked = state.job, f"backfill on fork {fork.timeline_id}, from checkpoint {point}"
        step = (
            f"{forked}, is running: wait for it (milepost backfill {job} --dispose stops it and gives it up)"
            if working
            else f"{forked}, is not finished: milepost backfill {job} --from-checkpoint {point}, with the options it "
            f"was begun with, continues with it; milepost backfill {job} --dispose gives it up"
        )
        unfinished.append(
            UnfinishedBackfill(
                fork=fork.timeline_id,
                fork_point=point,
                head=own_head,
                pending=None if fork.pending is None else int(fork.pending.checkpoint_id),
                session_id=None if leader is None else leader.session_id,
                working=working,
                next_step=step,
            )
        )
    return tuple(unfinished)


def forks_of_backfills(context: JobContext, state: ManifestState) -> list[tuple[Timeline, str]]:
    """Return the open forks of backfills, each with the backfill's fingerprint."""
    forks = []
    for timeline in open_forks(state):
        opener = fork_event(context, timeline).session_id
        if opener.startswith(OPENED_BY):
            forks.append((timeline, opener.removeprefix(OPENED_BY).partition("/")[0]))
    return forks
