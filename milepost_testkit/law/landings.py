"""Landings of a random job: whole ones, killed ones, ones whose replies are lost, and rivals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from milepost.errors import CheckpointError
from milepost.jobmaster import JobMaster
from milepost.jobmaster.landing.lander import Lander
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobspec.load.load import LoadedJob
from milepost.storage.log.source_log import SourceLog
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore
from milepost_testkit.stores.hooked_store import Hook, HookedStore

WHOLE = "landed"
NONE = "not landed"
_LOST = {f"landing: {effect.name.lower()}": effect for effect in (Effect.LOST_REPLY, Effect.LOST_REQUEST)}
_KILLED_BEFORE, _KILLED_AFTER, _RIVALS = "landing: killed before", "landing: killed after", "landing: rivals"
LANDINGS = (WHOLE, WHOLE, _RIVALS, _KILLED_AFTER, NONE, _KILLED_BEFORE, *_LOST)
"""What happens to the landing before an epoch, a rollback or a backfill."""


class _Killed(BaseException):
    """The process of a landing ended here."""


def land(job: LoadedJob, how: str, write: int) -> None:
    """Land each landed source of a job.

    Args:
        how: of `LANDINGS`. write: the number of the write at which it happens, from 0.
    """
    master = JobMaster(job)
    if how == NONE:
        return
    if how == WHOLE or master.context.log.head() is None:
        report = master.landings.land()
        assert not report.failed, report
        return
    for name, spec in master.context.spec.landed.items():
        plan = [Fault(lambda operation, _: operation in WRITES, _LOST[how], write)] if how in _LOST else []
        strike = _at(write, partial(master.landings.land, [name])) if how == _RIVALS else _at(write, _kill)
        before = strike if how in (_RIVALS, _KILLED_BEFORE) else _pass
        after = strike if how == _KILLED_AFTER else _pass
        store = HookedStore(FaultyStore(master.context.store, plan), before=before, after=after)
        with suppress(CheckpointError, _Killed):
            Lander(SourceLog(store, name), open_source(master.context, name, spec), master.context.identity).land()


def _at(write: int, act: Callable[[], object]) -> Hook:
    """Return a hook that acts at one write."""
    count = 0

    def hook(operation: str, key: str) -> None:
        nonlocal count
        if operation in WRITES:
            count += 1
            if count == write + 1:
                act()

    return hook


def _kill() -> None:
    raise _Killed


def _pass(operation: str, key: str) -> None:
    return None
