"""Each kind of operator is complete: every step of `docs/explanation/operator-kind.md` has been done for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from milepost.operators.kinds import KINDS, STATEFUL_KINDS
from milepost_testkit.models.data.laws import LAWS
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.floors import FLOORS
from scripts.reference.spec_page import HEADINGS
from tests.mutants.seeded import ALL as MUTANTS

TEST_FOLDERS = {"aggregate": "aggregation", "deduplicate": "test_operator_rules.py"}
"""Kind -> where its tests are, if that is not the folder with its name."""
WITHOUT_RANDOM_JOBS = {"process"}
"""Random jobs have no classes of a user; `test_every_kind.py` has one."""


@cache
def text(path: str) -> str:
    return (REPOSITORY / path).read_text(encoding="utf-8")


@cache
def how_to() -> str:
    pages = [*(REPOSITORY / "docs" / "how-to").glob("*.md"), REPOSITORY / "docs" / "reference" / "process.md"]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def missing_steps(kind: str) -> Iterator[str]:
    """Yield what to do for each step of the recipe that is missing for a kind."""
    tests = f"tests/unit/operators/{TEST_FOLDERS.get(kind, kind)}"
    yield from _of_state(kind)
    floors = chain.from_iterable(floor.split() for floor in FLOORS["operators"])
    if kind not in floors:
        yield f'3: add {kind} to FLOORS["operators"] in milepost_testkit/repository/floors.py'
    if f"kind: {kind}," not in text("config/examples/all_keys.yaml"):
        yield f"4: use `kind: {kind}` in config/examples/all_keys.yaml, with a sink or a reader"
    if f"\ndef {kind}(" not in text("tests/unit/jobspec/graph/test_event_time.py"):
        yield f"4: write the function {kind} in tests/unit/jobspec/graph/test_event_time.py"
    if not (REPOSITORY / tests).exists():
        yield f"4: write {tests}/test_{kind}.py and test_{kind}_rules.py"
    if f'"{kind}"' not in text("milepost_testkit/law/operators.py") and kind not in WITHOUT_RANDOM_JOBS:
        yield f"5: add {kind} to KINDS and operator_of in milepost_testkit/law/operators.py"
    job = "tests/integration/epochs/whole_jobs/test_every_kind.py"
    if f'"kind": "{kind}"' not in text(job) and kind not in WITHOUT_RANDOM_JOBS:
        yield f"5: add an operator of {kind} to {job}"
    if not any(test.startswith(tests) or f"/test_{kind}_" in test for mutant in MUTANTS for test in mutant.tests):
        yield f"6: seed a mutant in tests/mutants that a test of {tests} catches"
    if KINDS[kind].__name__ not in HEADINGS:
        yield f"7: add {KINDS[kind].__name__} to HEADINGS in scripts/reference/spec_page.py"
    if f"kind: {kind}" not in how_to():
        yield f"7: write docs/how-to/{kind}.md with an operator of `kind: {kind}`, and list it in docs/how-to/.nav.yml"


def _of_state(kind: str) -> Iterator[str]:
    spec = STATEFUL_KINDS.get(kind)
    if spec is None:
        return
    folder = f"pipeline/milepost/operators/{kind}"
    if "def build(" not in (text(f"{folder}/run.py") if (REPOSITORY / folder / "run.py").exists() else ""):
        yield f"2: write {folder}/run.py with the function build"
    if spec not in LAWS:
        yield f"5: map {spec.__name__} to its law in milepost_testkit/models/data/laws.py"
    if f"kind: {kind}," not in text("milepost_testkit/compatibility/every_kind.py"):
        yield f"5: add an operator of {kind} to the stored job in milepost_testkit/compatibility/every_kind.py"


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_of_the_recipe_is_missing_for_a_kind(kind: str) -> None:
    if missing := [*missing_steps(kind)]:
        pytest.fail("\n".join((f"kind {kind} lacks these steps of docs/explanation/operator-kind.md:", *missing)))
