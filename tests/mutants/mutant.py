"""A seeded mutant: one rule of the protocol broken on purpose, and the tests that must fail."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operations import applied, missing_words
from tests.mutants.places import MisplacedMutant, find_function, find_place

CUT = "cut"
"""Instead of an invariant: the rules of barriers, snapshots and watermarks within one subtask (DESIGN 4)."""

ROWS = "rows"
"""Instead of an invariant: what a row becomes between its object and its table, and the state that it leaves."""

ACCESS = "access"
"""Instead of an invariant: who may see a job in Airflow (DESIGN 9)."""

INVARIANTS: tuple[str, ...] = (*(f"I{number}" for number in range(1, 15)), CUT, ROWS, ACCESS)


@dataclass(frozen=True, slots=True)
class MutatedModule:
    """A module with a mutant in it.

    Attributes:
        file: relative to the root of the repository. before, after: its trees.
    """

    file: str
    before: ast.Module
    after: ast.Module

    @property
    def source(self) -> str:
        return ast.unparse(self.after) + "\n"

    def changed_statements(self) -> list[tuple[ast.stmt, ast.stmt]]:
        """Return the statements of the module that differ, before and after."""
        pairs = zip(self.before.body, self.after.body, strict=True)
        return [(one, other) for one, other in pairs if one is not other and ast.dump(one) != ast.dump(other)]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function that breaks one rule.

    Attributes:
        name: what the mutant does wrong, as a clause.
        invariant: one of `INVARIANTS`.
        function: the end of the module's path and the qualified name, as `find_function` reads them.
        place: the node of the function, as `find_place` reads it.
        operation: what is done to the node, one of `operations.OPERATIONS`.
        tests: ``file::test`` or ``file::class::test``; each must fail. They need no Spark and no server.
    """

    name: str
    invariant: str
    function: str
    place: str
    operation: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> MutatedModule:
        """Return the mutated module of the tree at `root`.

        Raises MisplacedMutant: the code has no such function or place, has several, or the operation does not fit.
        """
        try:
            file, tree, scope = find_function(root, self.function)
            if unknown := missing_words(self.operation, root):
                raise MisplacedMutant(f"{self.operation!r} reads {', '.join(unknown)}, which no module has")
            module = MutatedModule(file, tree, applied(tree, find_place(scope, self.place), self.operation))
        except MisplacedMutant as error:
            raise MisplacedMutant(
                f"mutant {self.name!r} fits no code: in {self.function}, at {self.place!r}, do {self.operation!r}:"
                f" {error}. Nothing was run: bring the mutant up to date with the code."
            ) from None
        if not module.changed_statements():
            raise MisplacedMutant(f"mutant {self.name!r} changes nothing in {self.function}. Nothing was run.")
        return module
