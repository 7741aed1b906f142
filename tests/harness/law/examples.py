"""Random jobs and histories for the law: small, cheap to draw, and hard where the rules have edges.

A row, an operator and a step are one whole number each, read digit by digit: Hypothesis draws thousands of them in a
second, and what is simplest is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost.spec.graph.rules.join import LEFT_ALONE
from milepost.spec.job.spec import JobSpec
from tests.harness.law.kinds.lookups import DOCUMENT, STATIC
from tests.harness.law.kinds.lookups import KEYS as LOOKED_UP
from tests.harness.law.kinds.lookups import SCHEMA as STATIC_SCHEMA
from tests.harness.law.plane import EpochOptions
from tests.harness.law.sql_examples import sql_operator

MINUTE_US = 60_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("f", pa.float64()),
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
    ]
)
_TYPES = {
    "k": "string", "f": "float64", "i": "int32", "x": "float64", "d": "decimal(9,2)", "b": "bool",
    "t": "timestamp[us, UTC]",
}  # fmt: skip

KEYS = ("a", "b", None, "", "AA", "a longer key, which is no inlined one")
FLOAT_KEYS = (1.5, 0.0, -0.0, None, float("nan"))
WHOLE = (0, 1, -1, None, 2**31 - 1, -(2**31))
VALUES = (0.25, -0.5, 1024.0, None, float("nan"), -0.0)
"""Sums of them are exact in whatever order: what is left of floats are zeros and NaN."""
PRICES = (Decimal("0.01"), Decimal("-9999999.99"), None, Decimal("12.50"))
FLAGS = (True, False, None)
MINUTES = (0, 30, 59, 60, -1, -30, -60, -90, 45, 15, 90, -20)
EDGES_US = (0, 0, -1, 1)
STEP_MINUTES = 30
BEGIN_MINUTES = -60
"""The first epochs are before 1970."""

DELAYS = ("0s", "10m", "1h")
SIZES = ({"tumbling": "1h"}, {"tumbling": "30m"}, {"tumbling": "7m"})
CALENDARS = (
    {"tumbling": "1d", "timezone": "America/St_Johns"},
    {"tumbling": "1h", "offset": "25m"},
    {"tumbling": "1d", "timezone": "Europe/London", "offset": "30m"},
    {"tumbling": "1mo"},
    {"tumbling": "1w", "timezone": "Asia/Kolkata", "offset": "3d"},
    {"sliding": {"size": "3d", "slide": "1d"}, "timezone": "America/St_Johns", "offset": "30m"},
    {"sliding": {"size": "1h", "slide": "15m"}, "offset": "5m"},
    {"sliding": {"size": "2mo", "slide": "1mo"}, "timezone": "Asia/Kolkata"},
)
SLIDING = tuple(
    {"sliding": {"size": size, "slide": slide}} for size, slide in (("1h", "15m"), ("14m", "7m"), ("2h", "30m"))
)
SESSIONS = tuple({"session": {"gap": gap}} for gap in ("30m", "15m", "1h", "1s"))
WINDOWS = (SIZES, SLIDING, SESSIONS, SIZES, CALENDARS)
LATENESS = ("0s", "30m", "1h")
TTLS = ("30m", "1h", "1s")
CALLS = (
    {"n": "count(*)", "total": "sum(i)"},
    {"n": "count(*)", "low": "min(x)", "high": "max(f)", "mean": "avg(x)"},
    {"n": "count(i)", "money": "sum(d)", "least": "min(d)", "first": "min(t)", "name": "max(k)"},
    {"n": "count(*)", "sum_x": "sum(x)", "mean_i": "avg(i)"},
    {"n": "count(*)", "spread": "var(i)", "of_x": "stddev(x)", "of_d": "var(d) filter (where b)", "some": "any(b)"},
    {"n": "count(*)", "ks": "count(distinct k)", "xs": "count(distinct x)", "is": "count(distinct i) filter (where b)"},
    {"n": "count(b)", "first_k": "first(k)", "last_x": "last(x)", "at_most": "arg_max(i, d)", "every": "every(b)"},
    {"n": "count(*) filter (where i > 0 and not b)", "total": "sum(d) filter (where x > 1 or k = 'a')",
     "ks": "count(distinct k) filter (where i > 0 and not b)", "some": "any(b) filter (where x IS NULL)"},
    {"n": "count(*) filter (where b)", "total": "sum(i) filter (where b)", "low": "arg_min(k, x) filter (where b)",
     "last_d": "last(d) filter (where b)", "mean": "avg(x) filter (where b)"},
)  # fmt: skip
OVER_UPDATES = (
    {"n": "count(*)", "total": "sum(n)"},
    {"n": "count(*) filter (where n > 1)", "total": "sum(n) filter (where n <> 2 or n IS NULL)"},
    {"n": "count(n)", "mean": "avg(n)", "spread": "var(n)"},
)


def over_updates(
    columns: Sequence[str], flags: Sequence[str] = (), by: str = "n", sums: Sequence[dict[str, str]] = OVER_UPDATES
) -> tuple[dict[str, str], ...]:
    """Return what may be aggregated of updates: sums, values of some columns, and flags."""
    values = tuple(
        one
        for name in columns
        for one in (
            {"n": "count(*)", "low": f"min({name})", "high": f"max({name})", "many": f"count(distinct {name})"},
            {"n": "count(*)", "least": f"arg_min({name}, {by})", "most": f"arg_max({by}, {name})", "top": f"max({by})"},
        )
    )
    of_flags = tuple(
        {"n": "count(*)", "some": f"any({name})", "each": f"every({name})", "low": f"min({by}) filter (where {name})",
         "of_true": f"arg_max({name}, {by}) filter (where {name})",
         "many": f"count(distinct {by}) filter (where {name})"}
        for name in flags
    )  # fmt: skip
    return (*sums, *values, *of_flags)


OVER_CHOSEN = over_updates(
    SCHEMA.names,
    ["b"],
    "i",
    (
        {"n": "count(*)", "total": "sum(i)"},
        {"n": "count(i)", "money": "sum(d)", "mean": "avg(d)", "spread": "var(i)"},
        {"n": "count(*) filter (where b)", "total": "sum(i) filter (where b)", "some": "count(x)"},
    ),
)
"""Over rows of `SCHEMA` of which others may take the place."""
ORDERS = (("x",), ("f", "x"), ("k",), ("d", "i"), ("t",))
WINDOW_ORDERS = (("n",), ("window_start", "n"))
DELETES = ("i < 0", None, "x IS NULL OR x > 1", "d < 0")
WINDOW_DELETES = ("n < 2", None)
BASE_KEYS = (("k",), ("f",), ("k", "f"), ("i",), ("k", "i"))


IDLE = ((), ("b",), ("a",), ("b",), ("a", "b"))
RESCALED = ((2, 2, 1, 3), (3, 3, 2, 1), (1, 3, 1, 2))
"""Subtasks of the epochs of windows that come out again, some of them cut: from each to fewer, and to more."""
TIMEOUT = "1ms"
"""A source in which a trigger finds nothing is idle."""
CUTS = (None, "1ms", "5ms", "20ms")


class Digits:
    """A whole number, read digit by digit, each of the base that is asked for."""

    def __init__(self, number: int) -> None:
        self._rest = number

    def pick(self, choices: Sequence[Any]) -> Any:
        self._rest, digit = divmod(self._rest, len(choices))
        return choices[digit]


_ROWS = len(KEYS) * len(FLOAT_KEYS) * len(WHOLE) * len(VALUES) * len(PRICES) * len(FLAGS) * len(MINUTES) * len(EDGES_US)
_LARGE = 1 << 40


def rows_table(numbers: Sequence[int], epoch: int) -> pa.Table:
    """Return the rows that these numbers stand for; their times go on with the epochs, out of order."""
    rows = []
    for number in numbers:
        digits = Digits(number)
        minute, edge = digits.pick(MINUTES), digits.pick(EDGES_US)
        values = [digits.pick(choices) for choices in (KEYS, FLOAT_KEYS, WHOLE, VALUES, PRICES, FLAGS)]
        rows.append((*values, (BEGIN_MINUTES + STEP_MINUTES * epoch + minute) * MINUTE_US + edge))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


@dataclass(frozen=True)
class Step:
    """One epoch.

    Attributes:
        back: how far behind the head it begins. rows: of each source. options: how it is run.
        vetoed: its checkpoint is given up, and the next epoch reads its rows as well.
    """

    back: int
    rows: tuple[tuple[int, ...], ...]
    options: EpochOptions
    vetoed: bool = False

    @classmethod
    def read(
        cls, number: int, rows: tuple[tuple[int, ...], ...], *, cuts: bool, idle: Sequence[tuple[str, ...]] = ((),)
    ) -> Step:
        """Return the epoch that a number stands for. Args: idle: sources that may be, as a replay has them too."""
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
        weak: whether nearly all keys have one hash. ends: whether event time ends with the last epoch.
    """

    spec: JobSpec
    steps: tuple[Step, ...]
    weak: bool
    ends: bool


def examples(max_operators: int = 3, max_epochs: int = 3, max_rows: int = 8) -> st.SearchStrategy[Example]:
    """Jobs with one or two sources, and histories of them."""
    return st.builds(_example, *_drawn(max_operators, max_rows, (1, max_epochs)))


def _drawn(max_operators: int, max_rows: int, steps: tuple[int, int]) -> Iterator[st.SearchStrategy[Any]]:
    """Yield what an example is made of: a job's number, one of each operator, and per step one and what lands."""
    numbers, some_rows = st.integers(0, _LARGE), st.lists(st.integers(0, _ROWS - 1), max_size=max_rows).map(tuple)
    yield numbers
    yield st.lists(numbers, min_size=1, max_size=max_operators)
    yield st.lists(st.tuples(numbers, some_rows, some_rows), min_size=steps[0], max_size=steps[1])


def _example(job: int, operators: list[int], steps: list[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> Example:
    digits = Digits(job)
    cuts, weak, ends = digits.pick((False, True)), digits.pick((False, False, False, True)), digits.pick((False, True))
    sources = ("a", "b")[: digits.pick((1, 1, 2))]
    delays = [digits.pick(DELAYS) for _ in sources]
    subtasks = digits.pick((None, *RESCALED)) if cuts else None
    idle = digits.pick((IDLE, ((),))) if len(sources) > 1 and subtasks is None else ((),)
    first = _again if subtasks else _met if len(idle) > 1 else None
    document = job_document(sources, delays, operators, cuts=cuts, first=first)
    if subtasks:
        steps = (steps * len(subtasks))[: len(subtasks)]
    read = [Step.read(number, (left, right)[: len(sources)], cuts=cuts, idle=idle) for number, left, right in steps]
    for place, parallelism in enumerate(subtasks or ()):
        read[place] = replace(read[place], options=replace(read[place].options, parallelism=parallelism))
    return Example(JobSpec.model_validate(document), tuple(read), weak, ends)


@dataclass(frozen=True)
class JobExample:
    """A job for its master, and its history.

    Attributes:
        document: its spec. acts: what is done to it, one after another: a name of `ACTS`, how far back, how many
            subtasks from there on, and what lands before for each source.
    """

    document: dict[str, Any]
    acts: tuple[tuple[str, int, int, tuple[tuple[int, ...], ...]], ...]


ACTS = ("epoch", "epoch", "cut short", "epoch", "rollback", "backfill")


def job_examples(max_acts: int = 5, *, static: bool = False) -> st.SearchStrategy[JobExample]:
    """Jobs with one or two sources, and what people and schedules do to them.

    Args:
        static: whether there may be a static source, which lookups read.
    """
    return st.builds(partial(_job_example, static=static), *_drawn(3, 6, (2, max_acts)))


def _job_example(
    job: int, operators: list[int], acts: list[tuple[int, tuple[int, ...], tuple[int, ...]]], *, static: bool
) -> JobExample:
    digits = Digits(job)
    sources = ("a", "b")[: digits.pick((1, 1, 2))]
    delays = [digits.pick(DELAYS) for _ in sources]
    cut, idle = digits.pick(CUTS), digits.pick(IDLE) if len(sources) > 1 else ()
    first = _met if idle else _again if cut else None
    document = job_document(sources, delays, operators, static=static, first=first)
    document["checkpointing"] |= {"aligned_timeout": cut} if cut else {}
    for name in idle:
        document["sources"][name]["idle_timeout"] = TIMEOUT
    read = [(Digits(number), (left, right)[: len(sources)]) for number, left, right in acts]
    return JobExample(
        document,
        tuple((one.pick(ACTS), one.pick((1, 2, 3)), one.pick((1, 2, 1, 3)), rows) for one, rows in read),
    )


@dataclass(frozen=True)
class _Rows:
    """What an operator may read: columns that may be keys, aggregates of the others, and its event time.

    Attributes:
        columns: all of them, where a join may read them: those of `SCHEMA` first.
        orders: of updates, columns by which rows may be ranked.
        key: of updates; None if their rows come and are taken back without one.
        numbered: SQL may read them. value: a number among their columns.
    """

    name: str
    keys: tuple[tuple[str, ...], ...]
    calls: tuple[dict[str, str], ...]
    event_time: str
    columns: tuple[str, ...] = ()
    updates: bool = False
    orders: tuple[tuple[str, ...], ...] = (("n",),)
    key: tuple[str, ...] | None = None
    numbered: bool = False
    value: str = "n"


First = Callable[[str, Digits, list[_Rows]], tuple[dict[str, Any], bool, _Rows]]
"""Makes an operator over sources, as `_operator` does."""


def job_document(
    sources: Sequence[str],
    delays: Sequence[str],
    operators: Sequence[int],
    *,
    cuts: bool = False,
    static: bool = True,
    first: First | None = None,
) -> dict[str, Any]:
    """Return the spec of a job of these operators, each over a node before it whose rows are final.

    Args:
        static: whether there is a static source. first: makes the first operator; None: it is one of any kind.
    """
    nodes = [_Rows(name, BASE_KEYS, CALLS, "t", tuple(SCHEMA.names)) for name in sources]
    made: list[dict[str, Any]] = []
    sinks: list[dict[str, Any]] = []
    for number, code in enumerate(operators):
        digits = Digits(code)
        if first is not None and not made:
            operator, updates, rows = first(f"n{number}", digits, nodes)
        else:
            operator, updates, rows = _operator(f"n{number}", digits, nodes, KINDS if static else KINDS[:-1])
        made.append(operator)
        if rows is not None:
            nodes.append(rows)
        hidden = operator["kind"] == "lookup" and digits.pick((False, True))  # then some columns may be left out
        keyless = not updates if operator["kind"] == "sql" else operator["kind"] == "top" and "rank" not in operator
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
        | ({STATIC: DOCUMENT} if any(one["kind"] == "lookup" for one in made) else {}),
        "operators": made,
        "sinks": sinks,
        "spark": {"buffer_size": "64KB"},
        "checkpointing": {"max_parallelism": 8, **({"aligned_timeout": "1s"} if cuts else {})},
    }


def cuts_epochs(document: dict[str, Any]) -> bool:
    """Return whether epochs of a spec of `job_document` may end with rows in flight."""
    return "aligned_timeout" in document["checkpointing"]


def source_document(name: str, delay: str) -> dict[str, Any]:
    """Return the spec of a source of `SCHEMA` whose watermark lags so far behind."""
    return {
        "format": "parquet",
        "path": f"../landing/{name}/*.parquet",
        "schema": _TYPES,
        "event_time": "t",
        "watermark_delay": delay,
    }


KINDS = ("window", "deduplicate", "aggregate", "window", "ttl", "join", "top", "latest", "asof", "sql", "lookup")


def _operator(
    uid: str, digits: Digits, nodes: list[_Rows], kinds: Sequence[str]
) -> tuple[dict[str, Any], bool, _Rows | None]:
    """Return an operator, whether its rows are updates, and what may read them."""
    kind = digits.pick(kinds)
    updated = [node for node in nodes if node.numbered]
    if updated and digits.pick((True, False)):  # chains of updates and SQL are rare otherwise
        nodes, updated, kind = updated[-1:], updated[-1:], digits.pick(("sql", "aggregate", "top"))
    if kind == "sql":
        if updated:
            return sql_operator(uid, digits, digits.pick(updated))
        kind = "aggregate"
    if kind in ("join", "asof"):
        return _paired(uid, kind, digits, nodes)
    if kind == "top":
        return _top(uid, digits, digits.pick(nodes))
    kept = [node for node in nodes if kind == "aggregate" or not node.updates]
    if kind == "lookup":
        return _lookup(uid, digits, digits.pick([node for node in kept if node.event_time == "t"]))
    rows = digits.pick(kept)
    keys = [one for one in rows.keys if kind != "window" or "window_start" not in one]
    key = digits.pick([*keys, ()] if kind == "aggregate" else keys)
    operator: dict[str, Any] = {"uid": uid, "kind": kind, "inputs": [rows.name], "key": list(key)}
    if kind == "latest":
        operator |= _latest(digits, rows, key)
        return operator, True, _of_latest(uid, operator, rows)
    if kind == "aggregate":
        calls = {f"of_{name}" if name in key else name: call for name, call in digits.pick(rows.calls).items()}
        parts = tuple((name,) for name in key)
        keys = (*parts, ("n",), *([key] if key else []))
        totals = _Rows(uid, keys, _over(key, calls), "", updates=True, key=key, numbered=True)
        return operator | {"aggregates": calls}, True, totals
    if kind == "window":
        return _window(uid, digits, rows, key, LATENESS)
    if kind == "ttl":
        operator |= {"kind": "deduplicate", "ttl": digits.pick(TTLS)}
        operator["key"] = list(dict.fromkeys((*key, *digits.pick(((rows.event_time,), ())))))
    return operator, False, replace(rows, name=uid)


def _window(
    uid: str, digits: Digits, rows: _Rows, key: tuple[str, ...], latenesses: Sequence[str]
) -> tuple[dict[str, Any], bool, _Rows]:
    lateness, calls, window = digits.pick(latenesses), digits.pick(rows.calls), digits.pick(digits.pick(WINDOWS))
    operator: dict[str, Any] = {"uid": uid, "kind": "window", "inputs": [rows.name], "key": list(key)}
    operator |= {"window": window, "allowed_lateness": lateness, "aggregates": calls}
    if digits.pick((False, False, False, True)):
        operator["emit"] = "early"
    if lateness != "0s" or "emit" in operator:
        keys = (("window_start",), key, (*key, "window_start"), ("n",))
        timed = () if "session" in window else ({"n": "first(n)", "last_n": "last(n)", "end": "last(window_start)"},)
        further = (*_over((*key, "window_start"), calls), *timed)
        return operator, True, _Rows(uid, keys, further, "", updates=True)
    keys = (("window_start",), (*key, "window_start"), key)
    more = (
        {"n": "count(*)", "last": "max(window_end)", "sum_n": "sum(n)"},
        {"n": "count(distinct n)", "ends": "count(distinct window_end)"},
        {"n": "last(n)", "least": "arg_min(window_start, n)", "spread": "var(n)"},
    )
    return operator, False, _Rows(uid, keys, more, "window_end")


def _over(key: Sequence[str], calls: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Return what may be aggregated of an operator's updates: of its key, and of what its calls come to."""
    flags = [name for name, call in calls.items() if call.startswith(("any(", "every("))]
    return over_updates([*key, *(name for name in calls if name != "n")], flags)


def _lookup(uid: str, digits: Digits, rows: _Rows) -> tuple[dict[str, Any], bool, _Rows | None]:
    key = digits.pick((("k",), ("i",), ("f",), ("k", "i")))
    pairs = [{one: LOOKED_UP[one]} for one in key]
    taken = {LOOKED_UP[one] for one in key}
    new = {f"{uid}_{name}": f"right.{name}" for name in STATIC_SCHEMA.names if name not in taken}
    operator = {"uid": uid, "kind": "lookup", "inputs": [rows.name, STATIC], "key": pairs,
                "how": digits.pick(("left", "inner")), "order_by": [{"label": digits.pick(("desc", "asc"))}],
                "columns": new}  # fmt: skip
    found = replace(rows, name=uid, keys=(*rows.keys, (f"{uid}_label",)), columns=(*rows.columns, *new))
    return operator, False, found


def _top(uid: str, digits: Digits, rows: _Rows) -> tuple[dict[str, Any], bool, _Rows | None]:
    key = digits.pick(rows.keys)
    if rows.updates:
        order = digits.pick((digits.pick(rows.orders), (*key, *rows.orders[0])))
    else:
        order = digits.pick(ORDERS if rows.event_time == "t" else WINDOW_ORDERS)
    operator = {"uid": uid, "kind": "top", "inputs": [rows.name], "key": list(key),
                "order_by": [{name: digits.pick(("desc", "asc"))} for name in dict.fromkeys(order)],
                "n": digits.pick((2, 1, 3))}  # fmt: skip
    if digits.pick((False, False, True)):
        return operator, True, replace(_chosen(uid, rows), key=None)
    operator["rank"] = f"place_{uid}"
    keys = (*((name,) for name in key), key, (*key, f"place_{uid}"), (f"place_{uid}",))
    return operator, True, replace(_chosen(uid, rows), keys=keys, key=(*key, f"place_{uid}"))


def _chosen(uid: str, rows: _Rows) -> _Rows:
    """Return what may read rows of which some are chosen, whole."""
    if rows.updates:
        return replace(rows, name=uid)
    of_source = rows.event_time == "t"
    calls, orders = (OVER_CHOSEN, ORDERS) if of_source else (over_updates(rows.keys[-1]), WINDOW_ORDERS)
    return _Rows(uid, rows.keys, calls, "", updates=True, orders=orders)


def _of_latest(uid: str, operator: dict[str, Any], rows: _Rows) -> _Rows:
    """Return what may read the newest rows: all of their columns, or a few."""
    shown = operator.get("columns")
    if shown is None:
        numbered = rows.event_time == "t"
        key, value = tuple(operator["key"]), "CAST(i AS BIGINT)" if numbered else "n"
        return replace(_chosen(uid, rows), key=key, value=value, numbered=numbered)
    keys, sums = tuple((name,) for name in shown), ({"n": "count(*)"}, {"n": f"count({shown[0]})"})
    calls = over_updates(shown, by=shown[0], sums=sums)
    return _Rows(uid, keys, calls, "", updates=True, orders=keys)


def _latest(digits: Digits, rows: _Rows, key: tuple[str, ...]) -> dict[str, Any]:
    """Return what a latest operator says: few sequences, so that rows tie, and deletes at any place among them."""
    of_source = rows.event_time == "t"
    order = list(dict.fromkeys(digits.pick(ORDERS if of_source else WINDOW_ORDERS)))
    said: dict[str, Any] = {"sequence_by": order}
    condition = digits.pick(DELETES if of_source else WINDOW_DELETES)
    if condition is not None:
        said |= {"delete_when": condition} | digits.pick(({}, {"tombstone_ttl": digits.pick(TTLS)}))
    return said | digits.pick(({}, {"columns": list(dict.fromkeys((*order[:1], *key)))}))


def _paired(uid: str, kind: str, digits: Digits, nodes: list[_Rows]) -> tuple[dict[str, Any], bool, _Rows]:
    """Return a join, as of a time or not, of two sources, or of one node with itself; and what may read it."""
    sources = [node for node in nodes if node.name in ("a", "b")]
    left, right = digits.pick(sources), digits.pick(sources)
    if digits.pick((False, False, True)):
        left = right = digits.pick([node for node in nodes if node.columns])
    return _joined(uid, kind, digits, left, right)


def _met(uid: str, digits: Digits, sources: list[_Rows]) -> tuple[dict[str, Any], bool, _Rows]:
    """Return a join, as of a time or not, of two sources with each other."""
    left, right = digits.pick((sources, sources[::-1]))
    return _joined(uid, digits.pick(("join", "asof")), digits, left, right)


def _again(uid: str, digits: Digits, sources: list[_Rows]) -> tuple[dict[str, Any], bool, _Rows]:
    """Return windows that come out again."""
    return _window(uid, digits, digits.pick(sources), digits.pick(BASE_KEYS), LATENESS[1:])


def _joined(uid: str, kind: str, digits: Digits, left: _Rows, right: _Rows) -> tuple[dict[str, Any], bool, _Rows]:
    key = digits.pick(BASE_KEYS)
    operator = {
        "uid": uid,
        "kind": kind,
        "inputs": [left.name, right.name],
        "key": list(key),
        "how": digits.pick(("inner", "left", "right", "semi", "anti") if kind == "join" else ("inner", "left")),
    }
    if kind == "join":
        operator["within"] = digits.pick((["-30m", "30m"], ["0s", "0s"], ["-1h", "-1s"], ["0s", "1h"]))
    columns = left.columns
    if operator["how"] not in LEFT_ALONE:
        renamed = {f"{uid}_{name}": f"right.{name}" for name in right.columns if name not in key}
        operator["columns"], columns = renamed, (*columns, *renamed)
    return operator, False, _Rows(uid, BASE_KEYS, CALLS, "t", columns)


def _sink(sinks: list[dict[str, Any]], name: str, rows: str, mode: str) -> None:
    sinks.append({"name": name, "input": rows, "format": "parquet", "path": f"../lake/{name}", "mode": mode})
