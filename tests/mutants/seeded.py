"""All seeded mutants, by the invariant that they break."""

from __future__ import annotations

from tests.mutants import commit, deletion, exchange, leadership
from tests.mutants.mutant import Mutant

ALL: tuple[Mutant, ...] = tuple(
    sorted(
        (*commit.MUTANTS, *leadership.MUTANTS, *deletion.MUTANTS, *exchange.MUTANTS),
        key=lambda mutant: int(mutant.invariant.removeprefix("I")),
    )
)
"""In the order of the invariants; `sorted` keeps the order within one."""
