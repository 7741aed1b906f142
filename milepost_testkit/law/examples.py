"""Random jobs and histories for the laws: small, cheap to draw, and rich in edge cases.

A row, an operator and a step are one integer each, read digit by digit. Hypothesis draws thousands of them per second,
and shrinks them towards 0, the simplest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from milepost.jobspec.job.spec import JobSpec
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost_testkit.law.landings import LANDINGS
from milepost_testkit.law.operators import (
    KINDS,
    First,
    again,
    apart,
    extremes,
    fires,
    fires_behind,
    met,
    once,
    operator_of,
    passed,
    replaced,
)
from milepost_testkit.law.plane import EpochOptions
from milepost_testkit.law.readable import BASE_KEYS, CALLS, Readable
from milepost_testkit.law.rows import APART, NARROW, ROWS, SCHEMA, TYPES, WIDE, Digits, Domain, of_key
from milepost_testkit.law.served import SINK, served_operator
from milepost_testkit.models.data.file_feed import feed_document
from milepost_testkit.models.data.kinds.lookups import DOCUMENT, STATIC

DELAYS = ("0s", "10m", "1h")
IDLE = ((), ("b",), ("a",), ("b",), ("a", "b"))
RESCALED = ((2, 2, 1, 3), (3, 3, 2, 1), (1, 3, 1, 2))
"""Subtasks of the epochs of windows that come out again, some of them cut: from each to fewer, and to more."""
BEHIND: tuple[First, ...] = (once, fires_behind)
"""Rows of a source that may be idle, in flight before an operator that another one waits for."""
REPLACED: tuple[First, ...] = (replaced, extremes)
HELD: tuple[First, ...] = (passed, fires)
"""Windows behind two subtasks, of which one leaves rows in flight while the other one goes on."""
HELD_TIMES = 4
"""So often the rows of its first epoch are there: too many for the epoch's time."""
HELD_CUTS_MS = (8, 14, 20, 30)
"""Time enough for the few rows of one subtask, and too little for those of the other."""
THEMES: tuple[tuple[First, ...], ...] = ((), REPLACED, (apart,), (), BEHIND, HELD, REPLACED, HELD)
"""What an example begins with: chance alone rarely puts these together."""
TIMEOUT = "1ms"
"""A source in which a trigger finds nothing is idle."""
CUTS = (None, "1ms", "5ms", "20ms")
BUFFERS = ("64KB", "1B")
"""In the latter each row is a buffer, and may be in flight by itself."""
_LARGE = 1 << 40


@dataclass(frozen=True)
class Step:
    """One epoch.

    Attributes:
        back: number of checkpoints before the head at which it begins. rows: by source. options: how to run it.
        vetoed: its checkpoint is aborted, and the next epoch reads its rows too.
    """

    back: int
    rows: tuple[tuple[int, ...], ...]
    options: EpochOptions
    vetoed: bool = False

    @classmethod
    def read(
        cls, number: int, rows: tuple[tuple[int, ...], ...], *, cuts: bool, idle: Sequence[tuple[str, ...]] = ((),)
    ) -> Step:
        """Return the epoch that a number encodes. idle: sources that may be idle, in a replay too."""
        digits = Digits(number)
        return cls(
            back=digits.pick((0, 0, 0, 0, 1, 2)),
            rows=rows,
            options=EpochOptions(
                parallelism=digits.pick((1, 2, 1, 1, 3)),
                budget=digits.pick((UNLIMITED, UNLIMITED, MemoryBudget(1), UNLIMITED, UNLIMITED, MemoryBudget(4_000))),
                cut_ms=digits.pick((3, None, 8, 20)) if cuts else None,
                attempts=digits.pick((1, 1, 1, 1, 2)),
                cold=digits.pick((False, False, False, True)),
                idle_before=frozenset(digits.pick(idle)),
                idle=frozenset(digits.pick(idle)),
            ),
            vetoed=digits.pick((False,) * 7 + (True,)),
        )


@dataclass(frozen=True)
class Example:
    """A job and its history.

    Attributes:
        weak: whether nearly all keys have the same hash. ends: whether event time ends with the last epoch.
        domain: of its rows.
    """

    spec: JobSpec
    steps: tuple[Step, ...]
    weak: bool
    ends: bool
    domain: Domain = WIDE


def examples(max_operators: int = 3, max_epochs: int = 3, max_rows: int = 8) -> st.SearchStrategy[Example]:
    """Return a strategy of jobs with one or two sources, with histories."""
    return st.builds(_example, *_drawn(max_operators, max_rows, (1, max_epochs)))


def _drawn(max_operators: int, max_rows: int, steps: tuple[int, int]) -> Iterator[st.SearchStrategy[Any]]:
    """Yield the parts of an example: numbers of the job and its operators, and per step a number and its rows."""
    numbers, some_rows = st.integers(0, _LARGE), st.lists(st.integers(0, ROWS - 1), max_size=max_rows).map(tuple)
    yield numbers
    yield st.lists(numbers, min_size=1, max_size=max_operators)
    yield st.lists(st.tuples(numbers, some_rows, some_rows), min_size=steps[0], max_size=steps[1])


def _example(job: int, operators: list[int], steps: list[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> Example:
    digits = Digits(job)
    theme = digits.pick(THEMES)
    waits, held = theme is BEHIND, theme is HELD
    cuts, weak = waits or held or digits.pick((False, True)), not held and digits.pick((False, False, False, True))
    ends, domain = digits.pick((False, True)), APART if held else NARROW if theme else digits.pick((WIDE, NARROW))
    sources = ("a", "b")[: 2 if waits else digits.pick((1, 1, 2))]
    delays = [digits.pick(DELAYS) for _ in sources]
    subtasks = (2,) * 3 if held else digits.pick((None, *RESCALED)) if cuts and not theme else None
    may_idle = waits or (len(sources) > 1 and not theme and subtasks is None and digits.pick((True, False)))
    leading = theme or ((again,) if subtasks else (met,) if may_idle else ())
    operators = (operators * max(1, len(leading)))[: max(len(operators), len(leading))]
    buffer = BUFFERS[-1] if waits or held else digits.pick(BUFFERS)
    document = job_document(sources, delays, operators, cuts=cuts, leading=leading, buffer=buffer)
    if subtasks:
        steps = (steps * len(subtasks))[: len(subtasks)]
    if held:
        steps = _one_sender_behind(steps)
    read = [
        Step.read(number, (left, right)[: len(sources)], cuts=cuts, idle=IDLE if may_idle else ((),))
        for number, left, right in steps
    ]
    for place, parallelism in enumerate(subtasks or ()):
        read[place] = replace(read[place], options=replace(read[place].options, parallelism=parallelism))
    if held:
        cut_ms = digits.pick(HELD_CUTS_MS)
        read = [replace(one, back=0, vetoed=False, options=replace(one.options, cut_ms=cut_ms)) for one in read]
    return Example(JobSpec.model_validate(document), tuple(read), weak, ends, domain)


def _one_sender_behind(steps: list[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> list[Any]:
    """Return steps that begin with many rows of one key, then have one or two of another key."""
    slow = [[tuple(of_key(row, 0) for row in side or (0,)) for side in sides] for _, *sides in steps]
    quick = [[tuple(of_key(row, 1) for row in side[:2] or (0,)) for side in sides] for _, *sides in steps]
    begin = [many * HELD_TIMES + few for many, few in zip(slow[0], quick[0], strict=True)]
    return [
        (number, *(sides if place else begin))
        for place, ((number, *_), sides) in enumerate(zip(steps, quick, strict=True))
    ]


@dataclass(frozen=True)
class JobExample:
    """A job for its master, and its history.

    Attributes:
        document: its spec. domain: of its rows.
        acts: the actions in order: a name of `ACTS`, checkpoints to go back, number of subtasks after it, and the
            rows that land before it for each source.
        landings: what happens to the landing before each action: of `LANDINGS`, and the number of the write.
    """

    document: dict[str, Any]
    acts: tuple[tuple[str, int, int, tuple[tuple[int, ...], ...]], ...]
    domain: Domain = WIDE
    landings: tuple[tuple[str, int], ...] = ()


ACTS = ("epoch", "epoch", "cut short", "epoch", "rollback", "backfill")
AWAY = "away"
"""The source `FEED` leaves the spec for so many acts."""
EMPTIED = "emptied"
"""Somebody empties the table in Postgres, and the sink is realigned."""
FEED = "feed"
"""A source that one sink alone reads."""


def job_examples(
    max_acts: int = 5, *, static: bool = False, feed: bool = False, served: bool = False, landed: bool = False
) -> st.SearchStrategy[JobExample]:
    """Return a strategy of jobs with one or two sources, with actions of users and schedules.

    Args:
        static: whether there may be a static source for lookups. feed: whether a source may be removed and return.
        served: whether there may be a Postgres table, in the database of `${env:PG_DSN}`.
        landed: whether sources may be external systems.
    """
    example = partial(_job_example, static=static, feed=feed, served=served, landed=landed)
    return st.builds(example, *_drawn(3, 6, (2, max_acts)))


def _job_example(
    job: int,
    operators: list[int],
    acts: list[tuple[int, tuple[int, ...], tuple[int, ...]]],
    *,
    static: bool,
    feed: bool,
    served: bool,
    landed: bool,
) -> JobExample:
    digits = Digits(job)
    sources = ("a", "b")[: digits.pick((1, 1, 2))]
    delays = [digits.pick(DELAYS) for _ in sources]
    cut, idle = digits.pick(CUTS), digits.pick(IDLE) if len(sources) > 1 else ()
    leading = (met,) if idle else (again,) if cut else ()
    document = job_document(sources, delays, operators, static=static, leading=leading)
    document["checkpointing"] |= {"aligned_timeout": cut} if cut else {}
    for name in idle:
        document["sources"][name]["idle_timeout"] = TIMEOUT
    domain = digits.pick((WIDE, NARROW))
    feed, served = feed and digits.pick((True, False)), served and digits.pick((True, False))
    if feed:
        document["sources"][FEED] = source_document(FEED, "0s")
        _sink(document["sinks"], FEED, FEED, "append")
    if served:
        document["operators"].append(served_operator("a", few=domain is NARROW))
        document["sinks"].append(dict(SINK))
    for name in document["sources"]:
        if landed and name != STATIC and digits.pick((False, True, False)):
            document["sources"][name] = feed_document(document["sources"][name], Path("landing", name))
    chosen = (*ACTS, *((AWAY, AWAY) if feed else ()), *((EMPTIED,) if served else ()))
    read = [(Digits(number), (left, right)[: len(sources)] + (left,) * feed) for number, left, right in acts]
    return JobExample(
        document,
        tuple((one.pick(chosen), one.pick((1, 2, 3)), one.pick((1, 2, 1, 3)), rows) for one, rows in read),
        domain,
        tuple((one.pick(LANDINGS), one.pick(range(5))) for one, _ in read),
    )


def job_document(
    sources: Sequence[str],
    delays: Sequence[str],
    operators: Sequence[int],
    *,
    cuts: bool = False,
    static: bool = True,
    leading: Sequence[First] = (),
    buffer: str = "64KB",
) -> dict[str, Any]:
    """Return the spec of a job with these operators, each over an earlier node with final rows.

    Args:
        static: whether there is a static source. leading: functions for the first operators; others are of any kind.
        buffer: size of the exchange's buffers.
    """
    nodes = [Readable(name, BASE_KEYS, CALLS, "t", tuple(SCHEMA.names)) for name in sources]
    kinds = [kind for kind in KINDS if static or kind != "lookup"]
    made: list[dict[str, Any]] = []
    sinks: list[dict[str, Any]] = []
    for number, code in enumerate(operators):
        digits = Digits(code)
        if number < len(leading):
            operator, updates, rows = leading[number](f"n{number}", digits, nodes)
        else:
            operator, updates, rows = operator_of(f"n{number}", digits, nodes, kinds)
        made.append(operator)
        if rows is not None:
            nodes.append(rows)
        hidden = operator["kind"] == "lookup" and digits.pick((False, True))  # then some columns may be omitted
        keyless = not updates if operator["kind"] == "sql" else _has_no_key(operator, updates)
        if not hidden and not keyless:
            _sink(sinks, operator["uid"], operator["uid"], "upsert" if updates else "append")
        if (operator["kind"] == "window" or {"ttl", "tombstone_ttl"}.intersection(operator)) and digits.pick(
            (False, True)
        ):
            _sink(sinks, f"{operator['uid']}_late", f"{operator['uid']}.late", "append")
    return {
        "name": "law",
        "storage": "../store",
        "sources": {name: source_document(name, delay) for name, delay in zip(sources, delays, strict=True)}
        | ({STATIC: dict(DOCUMENT)} if any(one["kind"] == "lookup" for one in made) else {}),
        "operators": made,
        "sinks": sinks,
        "spark": {"buffer_size": buffer},
        "checkpointing": {"max_parallelism": 8, **({"aligned_timeout": "1s"} if cuts else {})},
    }


def _has_no_key(operator: dict[str, Any], updates: bool) -> bool:
    """Return whether an operator's rows are retracted and have no key."""
    if operator["kind"] == "top":
        single = operator["n"] == 1 and bool(operator["key"])
        return "ties" in operator or not ("rank" in operator or single)
    return operator["kind"] == "join" and updates and "within" not in operator


def cuts_epochs(document: dict[str, Any]) -> bool:
    """Return whether epochs of a spec of `job_document` may end with rows in flight."""
    return "aligned_timeout" in document["checkpointing"]


def source_document(name: str, delay: str) -> dict[str, Any]:
    """Return the spec of a source of `SCHEMA` with this watermark delay."""
    return {
        "format": "parquet",
        "path": f"../landing/{name}/*.parquet",
        "schema": TYPES,
        "event_time": "t",
        "watermark_delay": delay,
    }


def _sink(sinks: list[dict[str, Any]], name: str, rows: str, mode: str) -> None:
    sinks.append({"name": name, "input": rows, "format": "parquet", "path": f"../lake/{name}", "mode": mode})
