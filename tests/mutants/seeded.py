"""All seeded mutants, by the invariant that they break."""

from __future__ import annotations

from tests.mutants import backfill, commit, deletion, exchange, jobmaster, leadership, log, rows, subtask, timelines
from tests.mutants.mutant import INVARIANTS, Mutant

ALL: tuple[Mutant, ...] = tuple(
    sorted(
        (
            *commit.MUTANTS,
            *leadership.MUTANTS,
            *deletion.MUTANTS,
            *exchange.MUTANTS,
            *subtask.MUTANTS,
            *timelines.MUTANTS,
            *backfill.MUTANTS,
            *jobmaster.MUTANTS,
            *log.MUTANTS,
            *rows.MUTANTS,
        ),
        key=lambda mutant: INVARIANTS.index(mutant.invariant),
    )
)
"""In the order of the invariants; `sorted` keeps the order within one."""
