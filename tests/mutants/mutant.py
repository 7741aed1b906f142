"""What a seeded mutant is: one rule of the protocol broken on purpose, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass

CUT = "cut"
"""Instead of an invariant: the rules of barriers, snapshots and watermarks within one subtask (DESIGN 4)."""

ROWS = "rows"
"""Instead of an invariant: what a row becomes between its object and its table, and the state that it leaves."""

ACCESS = "access"
"""Instead of an invariant: who may see a job in Airflow (DESIGN 9)."""

INVARIANTS: tuple[str, ...] = (*(f"I{number}" for number in range(1, 15)), CUT, ROWS, ACCESS)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module that breaks one invariant.

    Attributes:
        name: what the mutant does wrong, as a clause.
        invariant: one of `INVARIANTS`.
        file: the module, relative to the repository's root.
        old: text that occurs exactly once in the module. new: what the mutant has in its place.
        tests: ``file::test`` or ``file::class::test``; each must fail. They need no Spark and no server.
    """

    name: str
    invariant: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """Return the mutated source. Raises ValueError unless the old text is there exactly once."""
        found = source.count(self.old)
        if found != 1:
            raise ValueError(
                f"mutant {self.name!r}: expected its old text once in {self.file}, found it {found} times. Nothing was"
                " run: bring the mutant up to date with the module."
            )
        if self.old == self.new:
            raise ValueError(f"mutant {self.name!r}: its new text is its old text.")
        return source.replace(self.old, self.new)
