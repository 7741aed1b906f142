"""The laws of SQL: each table equals DuckDB's answer to its query, also after edits with their verdicts."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from milepost.epoch import EpochRunner
from milepost.errors import InvalidRequest
from milepost.jobmaster import NothingToDo, Session
from milepost.jobspec.graph import FROM_NOW_ON, NEW_TABLE, NON_RESTORED
from milepost.jobspec.load import SqlText, from_text
from milepost.protocol.records import CheckpointFailureReason
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sql_job import SqlJob, document, sources_with
from milepost_testkit.models.data.changed_jobs import CHANGES, RENAMES, ChangedJob
from milepost_testkit.models.data.random_sql import Draws

_STEPS = (
    *["edit"] * 6,
    *CHANGES,
    *RENAMES,
    "two edits",
    "undo",
    "rollback",
    "rollback and edit",
    "rescale",
    "wider source",
)
EDITS = "changed texts"
"""In what is covered: how many steps changed the SQL, or the operators of the spec."""


def hold_edits(seed: int, folder: Path, runner: EpochRunner, steps: Iterable[int] = range(3)) -> Counter[str]:
    """Edit a random job several times, and follow each verdict. Returns how many steps had which verdict.

    Args:
        steps: numbers of the steps. Each is drawn by itself, so that a failure may need fewer of them.

    After unchanged, refill and backfill, and after a rollback, each table equals its query. Of a job that continues
    from now on, all tables do that are not reported as incomplete.
    """
    history = _History(seed, folder, runner)
    for number in steps:
        history.step(seed * 100 + number)
    return history.covered


@dataclass(init=False)
class _History:
    """A job that is edited.

    Attributes:
        text: what the job is now. texts: what each checkpoint was made with.
        is_wide: whether the spec gives a column of `orders` a wider type than at first. was_wide: before the step.
        seen: the sources that a text has read. gone: those that a later text did not read.
    """

    job: SqlJob
    runner: EpochRunner
    rng: random.Random
    text: ChangedJob
    texts: dict[int, ChangedJob] = field(default_factory=dict)
    covered: Counter[str] = field(default_factory=Counter)
    is_wide: bool = False
    was_wide: bool = False
    seen: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def __init__(self, seed: int, folder: Path, runner: EpochRunner) -> None:
        self.runner, self.rng, self.texts, self.covered = runner, random.Random(f"edits {seed}"), {}, Counter()
        self.seen, self.gone = set(), set()
        self.text = _valid(ChangedJob(Draws(seed)), seed)
        self.job = SqlJob(
            folder,
            self.text.job.sql,
            self.text.job.keys,
            parallelism=1 + (seed % 3 == 0),
            seed=seed,
            is_loaded_once=True,
        )
        self.job.land()
        self._epoch()

    def step(self, seed: int) -> None:
        """Change the job, or go back, and follow the verdict."""
        self.rng = random.Random(f"edits {seed}")
        kind, before = self.rng.choice(_STEPS), self.text
        self.was_wide = self.is_wide
        after = before
        if kind == "rescale":
            self.job.rescale(self.rng.randrange(1, 4))
        elif kind == "wider source":
            self.is_wide = True
        elif kind == "undo":
            others = [text for text in self.texts.values() if text.job != before.job]
            after = self.rng.choice(others or [before])
        elif kind.startswith("rollback"):
            to = self.rng.choice([*self.texts])
            roll_back(self.job.master, to)
            before = self.texts[to]
            after = before if kind == "rollback" else _edited(before, seed)
            self.texts = {number: text for number, text in self.texts.items() if number <= to}
        elif kind in CHANGES:
            changed = before.changed(kind, seed)
            after = changed if _is_valid(changed) else before
        else:
            after = _edited(before, seed)
            after = _edited(after, seed + 50) if kind == "two edits" else after
        is_changed = not _is_same(before, after)
        self.covered[EDITS] += is_changed
        self.covered[kind] += is_changed or kind not in CHANGES
        self._write(after)
        try:
            self._follow(before, is_renamed=kind in RENAMES)
        except InvalidRequest:  # such as a backfill to a table with another key; no table has changed
            self.covered["refused"] += 1
            self._restore(before)
            self._epoch()

    def _write(self, text: ChangedJob) -> None:
        self.text = text
        wide = {"quantity": "int64"} if self.is_wide else {}
        self.job.write(text.job.sql, **text.job.keys, sources=sources_with(text.job.sql, **wide))

    def _restore(self, before: ChangedJob) -> None:
        """Write the text and the source that the step began with."""
        self.is_wide = self.was_wide
        self._write(before)

    def _follow(self, before: ChangedJob, *, is_renamed: bool) -> None:
        """Do what the verdict asks for: an epoch, a backfill, rows from now on, or the former text."""
        verdict, options = self._verdict()
        was_complete = not self._incomplete()
        assert not is_renamed or verdict == "unchanged" or not was_complete, f"a new name is no {verdict}"
        self.covered[verdict] += 1
        if verdict == "another table":
            self._restore(before)
            self._epoch()
        elif verdict == "backfill":
            back_fill(self.job.master, self.runner, from_checkpoint=0)
            self.texts = {self.job.master.reports.status().head or 0: self.text}
            assert not self._incomplete()
            self._epoch()  # a backfill reads no input that the head has not read, such as that after a rollback
        else:
            try:
                self._epoch(**options)
            except InvalidRequest as refused:  # a type that only the epoch knows
                if refused.details.get("reason") != CheckpointFailureReason.SPEC_REFUSED.value:
                    raise
                self._restore(before)
                self._epoch()
            assert verdict == "from now on" or not was_complete or not self._incomplete()
        if not self.rng.randrange(3):
            self._epoch()

    def _verdict(self) -> tuple[str, dict[str, bool]]:
        """Return what an edit does, and the options with which the next epoch accepts it."""
        report = self.job.master.reports.compatibility()
        verdicts = {row["verdict"] for row in report if row["outcome"] == "refused"}
        options = {"allow_non_restored_state": NON_RESTORED in verdicts, "from_now_on": FROM_NOW_ON in verdicts}
        if NEW_TABLE in verdicts:
            return "another table", options
        if verdicts - {NON_RESTORED, FROM_NOW_ON} or (options["from_now_on"] and self.rng.randrange(2)):
            return "backfill", options
        if options["from_now_on"]:
            return "from now on", options
        outcomes = {row["outcome"] for row in report}
        return "refill" if outcomes & {"refilled", "new"} else "unchanged", options

    def _epoch(self, **options: bool) -> None:
        """Run an epoch, usually with new input, and compare the complete tables."""
        if self.rng.randrange(3):
            self.job.land()
        done = self.job.master.epochs.run(Session.cli(), self.runner, **options)
        read = {*document(self.text.job.sql)["sources"]}
        self.seen, self.gone = self.seen | read, self.gone | (self.seen - read)
        if not isinstance(done, NothingToDo):
            self.texts[done.checkpoint_id] = self.text
        self._check()

    def _incomplete(self) -> dict[str, int]:
        return self.job.master.reports.status().incomplete or {}

    def _check(self) -> None:
        for name, query in self.text.job.queries.items():
            self.job.database.execute(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
        incomplete = self._incomplete()
        for name, table in self.text.job.tables.items():
            if name not in incomplete:
                try:
                    self.job.check(table, f"SELECT * FROM {name}", is_edited=True)
                except AssertionError:
                    if not self._is_late():
                        raise
                    self.covered["late rows of a source that returned"] += 1

    def _is_late(self) -> bool:
        """Return whether rows came too late because their source was not read for some epochs.

        The rows of a landing are out of order. They are in time while the others of their epoch wait for them.
        """
        returned = self.gone & {*document(self.text.job.sql)["sources"]}
        return bool(returned) and any(one.late_rows for one in self.job.master.reports.list_checkpoints())


def _edited(text: ChangedJob, seed: int) -> ChangedJob:
    """Return another job. A draw may have the same result by another seed."""
    tries = (text.edited(seed + 10_000_019 * number) for number in range(50))
    return _valid(next((job for job in tries if not _is_same(job, text)), text), seed)


def _valid(text: ChangedJob, seed: int) -> ChangedJob:
    """Return the job, edited until it is valid: some joins have no key."""
    return text if _is_valid(text) else _edited(text, seed + 1_000_003)


def _is_valid(text: ChangedJob) -> bool:
    sql = text.job.sql
    try:
        from_text(json.dumps(document(sql, **text.job.keys)), Path("shop.yaml"), SqlText.of("shop.sql", sql)).graph()
    except InvalidRequest:
        return False
    return True


def _is_same(text: ChangedJob, other: ChangedJob) -> bool:
    return (text.job.sql, text.job.keys) == (other.job.sql, other.job.keys)
