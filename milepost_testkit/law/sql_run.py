"""`make sql-law`: random statements equal DuckDB's answers, and edited jobs equal runs from scratch."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.law.queries import EDITS, hold_edits
from milepost_testkit.models.data.random_sql import Draws
from milepost_testkit.models.data.random_tables import RandomTable, random_table
from milepost_testkit.runners.planes import Plane, epochs_in_process

SELECTS_PER_JOB = 8
"""What an epoch takes beside its steps is shared by so many statements."""
EDITS_PER_JOB = 6
_EPOCHS = 2
_MEMORY = Path("/dev/shm")
_REPORTED_EVERY_S = 60


def hold_tables(tables: Sequence[RandomTable], seed: int, plane: Plane) -> None:
    """Run a job of some tables, and compare each with DuckDB's answer after each epoch. Raises AssertionError."""
    with _folder() as folder:
        sql = ";\n".join(table.statement for table in tables)
        job = SqlJob(folder, sql, parallelism=1 + (seed % 3 == 0), seed=seed, is_loaded_once=True)
        runner = plane()
        for _ in range(_EPOCHS):
            job.run(runner)
            for table in tables:
                job.check(table.name, table.answer)


def tables_of(seed: int) -> list[RandomTable]:
    """Return the tables of one job. Each is drawn by a seed of its own."""
    return [random_table(Draws(seed * SELECTS_PER_JOB + number), f"v{number}") for number in range(SELECTS_PER_JOB)]


def smallest_tables(tables: list[RandomTable], seed: int, plane: Plane) -> list[RandomTable]:
    """Return the first table that fails alone, or all if only all of them fail."""
    for table in tables:
        if _fails(lambda table=table: hold_tables([table], seed, plane)):
            return [table]
    return tables


def hold_history(seed: int, plane: Plane, steps: Sequence[int] = range(EDITS_PER_JOB)) -> Counter[str]:
    """Edit a random job and follow each verdict. Raises AssertionError."""
    with _folder() as folder:
        return hold_edits(seed, folder, plane(), steps)


def smallest_history(seed: int, plane: Plane) -> list[int]:
    """Return the steps of a failing history that are left after each that is not needed was removed."""
    steps = [*range(EDITS_PER_JOB)]
    for step in range(EDITS_PER_JOB):
        fewer = [one for one in steps if one != step]
        if _fails(lambda fewer=fewer: hold_history(seed, plane, fewer)):
            steps = fewer
    return steps


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory, where there is one: a small epoch writes hundreds of files."""
    folder = Path(tempfile.mkdtemp(prefix="sql-law-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fails(hold: Callable[[], object]) -> bool:
    try:
        hold()
    except Exception:  # noqa: BLE001 - an example may fail with any error
        return True
    return False


@dataclass
class _Progress:
    """Counts examples and says from time to time how many ran.

    Attributes:
        what: "SELECTs" or "edits".
    """

    what: str
    wanted: int
    seed: int
    covered: Counter[str] = field(default_factory=Counter)
    done: int = 0
    failures: int = 0
    began: float = field(default_factory=time.monotonic)
    cpu_s: float = 0
    reported: float = 0

    def add(self, number: int, covered: Counter[str], cpu_s: float) -> None:
        self.done += number
        self.cpu_s += cpu_s
        self.covered += covered
        if time.monotonic() - self.reported > _REPORTED_EVERY_S or self.done >= self.wanted:
            self.reported = time.monotonic()
            print(self, flush=True)

    def fail(self, text: str) -> None:
        self.failures += 1
        print(f"FAILED {text}", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        each = f"{1000 * self.cpu_s / self.done:.0f} ms of CPU each" if self.done else "none yet"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.covered.items()))
        return (
            f"seed {self.seed}: {self.done:,} of {self.wanted:,} {self.what} "
            f"after {time.monotonic() - self.began:.0f} s, {each}, {self.failures} failures: {kinds}"
        )


def run_selects(progress: _Progress, plane: Plane) -> Iterator[None]:
    """Hold random statements job by job. A failure is reported with the fewest tables, and the others go on."""
    number = progress.seed
    while progress.done < progress.wanted:
        tables, began = tables_of(number), time.process_time()
        try:
            hold_tables(tables, number, plane)
        except Exception:  # noqa: BLE001 - reported; the other examples go on
            problem = traceback.format_exc()
            texts = "\n".join(f"{one.statement};\n-- {one.answer}" for one in smallest_tables(tables, number, plane))
            progress.fail(f"--only-job {number}\n{texts}\n{problem}")
        progress.add(len(tables), Counter(table.kind for table in tables), time.process_time() - began)
        number += 1
        yield


def run_edits(progress: _Progress, plane: Plane) -> Iterator[None]:
    """Hold random edits job by job. A failure is reported with the fewest steps, and the others go on."""
    number = progress.seed
    while progress.done < progress.wanted:
        covered, began = Counter[str](), time.process_time()
        try:
            covered = hold_history(number, plane)
        except Exception:  # noqa: BLE001 - reported; the other examples go on
            problem = traceback.format_exc()
            steps = " ".join(map(str, smallest_history(number, plane)))
            progress.fail(f"--only-history {number} --steps {steps}\n{problem}")
            covered[EDITS] = 1
        progress.add(covered.pop(EDITS, 0), covered, time.process_time() - began)
        number += 1
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--selects", type=int, default=5_000)
    parser.add_argument("--edits", type=int, default=5_000)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--only-job", type=int, help="run the statements of one job again")
    parser.add_argument("--only-history", type=int, help="run the edits of one job again")
    parser.add_argument("--steps", type=int, nargs="*", default=[*range(EDITS_PER_JOB)])
    chosen = parser.parse_args()
    with epochs_in_process() as plane:
        if chosen.only_job is not None:
            tables = smallest_tables(tables_of(chosen.only_job), chosen.only_job, plane)
            hold_tables(tables, chosen.only_job, plane)
            print(f"job {chosen.only_job} holds")
        elif chosen.only_history is not None:
            print(hold_history(chosen.only_history, plane, chosen.steps))
        else:
            selects, edits = (
                _Progress("SELECTs", chosen.selects, chosen.seed),
                _Progress("edits", chosen.edits, chosen.seed),
            )
            for _ in zip_longest(run_selects(selects, plane), run_edits(edits, plane)):
                pass  # in turns, so that a run that is cut short has some of both
            print(selects, edits, sep="\n")
            sys.exit(selects.failures + edits.failures > 0)


if __name__ == "__main__":
    main()
