"""All seeded mutants, by the invariant that they break; one file of them for each part of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.mutants.mutant import INVARIANTS, Mutant


def _seeded() -> Iterator[Mutant]:
    for file in sorted(Path(__file__).parent.glob("*.yaml")):
        for one in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader):
            yield Mutant(one["name"], one["breaks"], one["in"], one["at"], one["do"], tuple(one["tests"]))


ALL: tuple[Mutant, ...] = tuple(sorted(_seeded(), key=lambda mutant: INVARIANTS.index(mutant.invariant)))
"""In the order of the invariants; `sorted` keeps the order within one."""
