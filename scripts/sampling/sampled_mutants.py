"""Sampled mutants: random changes of the product, one at a time. The tests that reach a change must fail.

    python -m scripts.sampling.sampled_mutants --sample 300 --seed 7      run them; exit 1 if fewer than 95 % are caught
    python -m scripts.sampling.sampled_mutants --sample 20 state/ sinks/  only in files whose path has one of these

Which tests reach a line is measured once per state of sources and tests (`reached_lines.py`). The tests that reach a
mutant run until one fails, the fastest first. A mutant is a survivor if all of them pass within `BUDGET_S`. It also
counts as caught if the tests take far longer than usual: it is then an endless loop. Results are stored in
`.milepost/mutants`, each verdict under the hash of the mutated source. An interrupted run continues, and a second run
with the same seed only runs the mutants whose source has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.mutants import ROOT, run_tests
from scripts.sampling.mutations import MutableModule, Mutation
from scripts.sampling.reached_lines import Reach, digest_of, measure
from scripts.tree_copies import TreeCopies, tracked_files

KEPT = ROOT / ".milepost" / "mutants"
FOLDERS = ("state", "operators", "spark", "sinks", "sources", "epoch", "jobmaster")
"""Below `pipeline/milepost/`."""

ONLY_ON_SPARK = frozenset(
    f"pipeline/milepost/spark/{name}.py"
    for name in (
        "driver/deadline", "driver/engines/channel", "driver/engines/class_archive", "driver/engines/classic",
        "driver/engines/connect",
        "driver/engines/engine", "driver/engines/java", "driver/engines/open_engine", "driver/engines/session",
        "driver/epoch_graph", "driver/runner", "driver/spark_errors", "driver/sql_projection",
        "task/row_steps/sql_expression", "worker/worker_daemon", "worker/worker_memory",
    )
)  # fmt: skip
"""Not sampled: they only run with a JVM or in a limited process, and such tests take minutes per mutant."""

WANTED = 0.95
FIRST_S, BUDGET_S = 5.0, 600.0
"""Duration of the tests, without a mutant, that run first, and of all tests that run for one mutant."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one mutant.

    Attributes:
        verdict: caught, endless (also caught), survived, or unreached (no measured test runs its line).
        by: the first test that failed. tests: how many tests were run.
    """

    file: str
    line: int
    before: str
    after: str
    verdict: str
    by: str = ""
    tests: int = 0

    def describe(self) -> str:
        change = f"{_cut(self.before)}  ->  {_cut(self.after)}"
        return f"{self.verdict:<9} {self.file.removeprefix('pipeline/milepost/')}:{self.line}  {change}  {self.by}"


def _cut(text: str, most: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def sampled(root: Path, sample: int, seed: int, words: Sequence[str]) -> Iterator[tuple[str, Mutation]]:
    """Yield `sample` mutants of these files. Every mutation is equally likely."""
    modules = {name: MutableModule((root / name).read_text(encoding="utf-8")) for name in mutable_files(root, words)}
    places = [(name, index) for name, module in modules.items() for index in range(len(module))]
    chance = random.Random(seed)
    chance.shuffle(places)
    for name, index in places:
        mutation = modules[name].mutation(index) if sample else None
        if mutation is not None:
            sample -= 1
            yield name, mutation


def mutable_files(root: Path, words: Sequence[str]) -> list[str]:
    product = root / "pipeline" / "milepost"
    found = [path for folder in FOLDERS for path in sorted((product / folder).rglob("*.py"))]
    names = [path.relative_to(root).as_posix() for path in found]
    return [
        name
        for name in names
        if name not in ONLY_ON_SPARK and not name.endswith("__.py") and (not words or any(one in name for one in words))
    ]


class Judge:
    """Runs mutants in copies of a tree, several at the same time."""

    def __init__(self, root: Path, kept: Path, reach: Reach, jobs: int) -> None:
        self._root, self._reach = root, reach
        self._verdicts = kept / "verdicts"
        self._verdicts.mkdir(parents=True, exist_ok=True)
        self._tests = digest_of(root, ("tests", "milepost_testkit"))
        self._copies = TreeCopies(root, kept / f"copies-{os.getpid()}", jobs, tracked_files(root))

    def close(self) -> None:
        self._copies.close()

    def judge(self, file: str, mutation: Mutation) -> Verdict:
        """Return the outcome of a mutant. One that was not caught is tried again if a test has changed."""
        digest = hashlib.sha256(f"{file}\0{mutation.source}".encode()).hexdigest()
        kept = self._verdicts / f"{digest}.json"
        if kept.exists():
            document = json.loads(kept.read_text(encoding="utf-8"))
            if document.pop("asked_of") in (None, self._tests):
                return Verdict(**document)
        verdict = self._judge(file, mutation)
        asked_of = None if verdict.verdict in ("caught", "endless") else self._tests
        kept.write_text(json.dumps(asdict(verdict) | {"asked_of": asked_of}), encoding="utf-8")
        return verdict

    def _judge(self, file: str, mutation: Mutation) -> Verdict:
        place = (file, mutation.line, mutation.before, mutation.after)
        tests = self._reach.tests_of(self._root / file, mutation.first, mutation.last)
        if not tests:
            return Verdict(*place, "unreached")
        with self._copies.lend(file, mutation.source) as copy:
            asked = 0
            for chosen in self._portions(tests):
                asked += len(chosen)
                limit_s = 60 + 5 * sum(self._reach.seconds[test] for test in chosen)
                run = run_tests(copy, chosen, limit_s, "-x")
                if run.code is None:
                    return Verdict(*place, "endless", "", asked)
                if run.code != 0:
                    return Verdict(*place, "caught", next(iter(sorted(run.failed)), "no test can be loaded"), asked)
            return Verdict(*place, "survived", "", asked)

    def _portions(self, tests: Sequence[str]) -> Iterator[list[str]]:
        """Yield the fastest tests, then all others that fit the budget."""
        first: list[str] = []
        rest: list[str] = []
        spent = 0.0
        for test in tests:
            spent += self._reach.seconds[test]
            if spent <= FIRST_S or not first:
                first.append(test)
            elif spent <= BUDGET_S:
                rest.append(test)
        yield first
        if rest:
            yield rest


def main(arguments: list[str] | None = None) -> int:
    """Run a sample. Returns 1 if too few of the mutants that tests reach are caught."""
    parser = argparse.ArgumentParser(prog="sampled_mutants", description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="only files whose path contains one of these")
    parser.add_argument("--sample", type=int, required=True, help="how many mutants")
    parser.add_argument("--seed", type=int, required=True, help="selects the mutants")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="how many run at the same time")
    options = parser.parse_args(arguments)
    print(f"sample {options.sample}, seed {options.seed}; measuring which tests reach which line", flush=True)
    reach = measure(ROOT, KEPT, options.jobs)
    judge = Judge(ROOT, KEPT, reach, options.jobs)
    verdicts: list[Verdict] = []
    try:
        mutants = list(sampled(ROOT, options.sample, options.seed, options.words))
        with ThreadPoolExecutor(options.jobs) as pool:
            for verdict in pool.map(lambda mutant: judge.judge(*mutant), mutants):
                verdicts.append(verdict)
                print(f"{len(verdicts):>4}  {verdict.describe()}", flush=True)
    finally:
        judge.close()
    reached = [one for one in verdicts if one.verdict != "unreached"]
    survivors = [one for one in reached if one.verdict == "survived"]
    caught = 1 - len(survivors) / len(reached) if reached else 0.0
    print(f"\n{len(reached)} of {len(verdicts)} mutants are reached; {caught:.1%} of these are caught. Survivors:")
    print("\n".join(one.describe() for one in survivors) or "none")
    print("\n".join(one.describe() for one in verdicts if one.verdict == "unreached"))
    return 0 if caught >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
