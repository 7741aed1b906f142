"""Statements that are added to a random job, removed from it or renamed, and renamed common table expressions."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from milepost_testkit.models.data.random_jobs import ALONE, RandomJob, random_job, random_reader
from milepost_testkit.models.data.random_sql import Draws
from milepost_testkit.models.data.random_tables import KINDS

_CTE = re.compile(r"(?:WITH|,) (\w+) AS \(SELECT")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the statements of a job.

    Attributes:
        kind: one of CHANGES. name: the statement that changes. seed: for random choices and new names.
        cte: the common table expression that is renamed.
    """

    kind: str
    name: str
    seed: int
    cte: str = ""


@dataclass(frozen=True)
class ChangedJob:
    """A random job by its draws, and the changes of its statements since, which another draw does not undo."""

    draws: Draws
    changes: tuple[Change, ...] = ()
    job: RandomJob = field(init=False)

    def __post_init__(self) -> None:
        job = random_job(self.draws.again())
        for change in self.changes:
            job = CHANGES[change.kind](job, change)
        object.__setattr__(self, "job", job)

    def edited(self, seed: int) -> ChangedJob:
        """Return the job with another result of one draw."""
        return ChangedJob(self.job.draws.edited(seed), self.changes)

    def changed(self, kind: str, seed: int) -> ChangedJob:
        """Return the job with another statement or name; itself if no statement can be changed so."""
        rng = random.Random(f"changes {seed}")
        job = self.job
        names = [name for name in job.queries if name not in job.own]
        if kind == "removed statement":
            names = [name for name in names if not _readers(job, name)]
        pairs = [(name, "") for name in names]
        if kind == "renamed expression":
            texts = {name: job.created.get(name, job.queries[name]) for name in names}
            pairs = [(name, cte) for name, text in texts.items() for cte in _CTE.findall(text)]
        if not pairs or (kind == "removed statement" and len(names) < 2):
            return self
        name, cte = rng.choice(pairs)
        changed = replace(self, changes=(*self.changes, Change(kind, name, seed, cte)))
        return changed if changed.job != job else self


def _readers(job: RandomJob, name: str) -> list[str]:
    """Return the statements and operators that read a statement."""
    return [other for other, query in job.queries.items() if other != name and re.search(rf"\b{name}\b", query)]


def _added(job: RandomJob, change: Change) -> RandomJob:
    """Add a statement over the sources, or one over `sums`, whatever its name is now."""
    rng, name = Draws(change.seed), f"added{change.seed}"
    if rng.choice((True, False)):
        created, query = KINDS[rng.choice(ALONE)](rng, name)
        return replace(job, queries=job.queries | {name: query}, created=job.created | {name: created})
    query = random_reader(rng)
    for newest, former in job.renamed.items():  # in the order of the renames
        query = re.sub(rf"\b{former}\b", newest, query) if "." not in newest else query
    is_valid = all(word not in ("sums", "newest") or word in job.queries for word in re.findall(r"\w+", query))
    return replace(job, queries=job.queries | {name: query}) if is_valid else job


def _removed(job: RandomJob, change: Change) -> RandomJob:
    """Remove a statement that none reads, with its former names."""
    name = change.name
    if name not in job.queries or name in job.own or _readers(job, name):
        return job
    queries, created = ({key: text for key, text in of.items() if key != name} for of in (job.queries, job.created))
    names = [name]
    while names[-1] in job.renamed:
        names.append(job.renamed[names[-1]])
    renamed = {new: old for new, old in job.renamed.items() if new.partition(".")[0] not in names}
    return replace(job, queries=queries, created=created, renamed=renamed)


def _renamed(job: RandomJob, change: Change) -> RandomJob:
    """Rename a statement, also where others read it."""
    name, new = change.name, f"renamed{change.seed}"
    if name not in job.queries or name in job.own:
        return job
    queries = {new if key == name else key: _replaced(query, name, new) for key, query in job.queries.items()}
    created = {new if key == name else key: _replaced(text, name, new) for key, text in job.created.items()}
    return replace(
        job,
        queries=queries,
        created=created,
        operators=tuple(json.loads(_replaced(json.dumps(job.operators), name, new))),
        views=frozenset(new if key == name else key for key in job.views),
        renamed=job.renamed | {new: name},
    )


def _renamed_expression(job: RandomJob, change: Change) -> RandomJob:
    """Rename a common table expression of a statement."""
    name, new = change.name, f"cte{change.seed}"
    queries, created = dict(job.queries), dict(job.created)
    text = created.get(name, queries.get(name, ""))
    if change.cte not in _CTE.findall(text):
        return job
    for of in (queries, created):
        if name in of:
            of[name] = _replaced(of[name], change.cte, new)
    renamed = job.renamed | {f"{name}.{new}": f"{name}.{change.cte}"}
    return replace(job, queries=queries, created=created, renamed=renamed)


def _replaced(text: str, name: str, new: str) -> str:
    return re.sub(rf"\b{name}\b", new, text)


CHANGES: dict[str, Callable[[RandomJob, Change], RandomJob]] = {
    "added statement": _added,
    "removed statement": _removed,
    "renamed statement": _renamed,
    "renamed expression": _renamed_expression,
}
RENAMES: Sequence[str] = ("renamed statement", "renamed expression")
"""Changes that leave all state and all tables as they are."""
