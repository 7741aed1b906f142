"""The targets, and what a set of results says of each: met, missed, or not measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bench.reports.statistics import Spread, ratio

Record = dict[str, Any]
Parts = dict[str, Record]
"""Part name -> its record, as `parts.py` names them."""
Measure = Callable[[Record], Spread | None]


class Verdict(Enum):
    """What the results say of a target."""

    MET = "met"
    MISSED = "**missed**"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Target:
    """One promise.

    Attributes:
        says: what is compared. part: the one that both sides of it are measured in.
        bound: of the median; at least it, or with `at_most` at most it. unit: after the figure.
        measure: the figure, of that part's record; None when the record does not have it.
    """

    says: str
    part: str
    bound: float
    measure: Measure
    at_most: bool = False
    unit: str = " ×"

    def judge(self, parts: Parts) -> tuple[Spread | None, Verdict]:
        """The figure and the verdict on it."""
        found = self.measure(parts[self.part]) if self.part in parts else None
        if found is None:
            return None, Verdict.UNKNOWN
        kept = found.median <= self.bound if self.at_most else found.median >= self.bound
        return found, Verdict.MET if kept else Verdict.MISSED


def counted(record: Record, system: str) -> list[dict[str, Any]]:
    """A system's epochs that count, in order."""
    return [epoch for epoch in record["systems"][system]["epochs"] if epoch["counted"]]


def walls(record: Record, system: str) -> list[float]:
    """Wall seconds of a system's epochs that count, in order."""
    return [epoch["wall_s"] for epoch in counted(record, system)]


def fastest(record: Record, begins: str | tuple[str, ...], ends: str = "") -> str | None:
    """The system with the lowest median among those whose name begins, with any of these, and ends so; None: none."""
    names = [name for name in record["systems"] if name.startswith(begins) and name.endswith(ends)]
    return min(names, key=lambda name: Spread.of(walls(record, name)).median, default=None)


def faster(rivals: str | tuple[str, ...], ours: str = "milepost", ends: str = "") -> Measure:
    """How many times the best of the rivals, whose names begin and end so, takes as long as ours."""

    def measure(record: Record) -> Spread | None:
        rival = fastest(record, rivals, ends)
        if rival is None or ours not in record["systems"]:
            return None
        return ratio(walls(record, rival), walls(record, ours))

    return measure


def against(ours: str, other: str) -> Measure:
    """How many times one system takes as long as another."""

    def measure(record: Record) -> Spread | None:
        present = {ours, other} <= record["systems"].keys()
        return ratio(walls(record, ours), walls(record, other)) if present else None

    return measure


def _above_the_limit(record: Record) -> Spread | None:
    limit = fastest(record, "limit-")
    return None if limit is None else ratio(walls(record, "milepost"), walls(record, limit))


def state_bytes_per_key(record: Record, system: str) -> Spread | None:
    """Bytes of state that an epoch writes per key that it changes; None when the system does not say."""
    epochs = [epoch for epoch in counted(record, system) if "state_bytes" in epoch["figures"]]
    changed = record["changed_keys"]
    values = [e["figures"]["state_bytes"] / changed[e["number"]] for e in epochs if changed[e["number"]]]
    return Spread.of(values) if values else None


def _bytes_per_key(record: Record) -> Spread | None:
    return state_bytes_per_key(record, "milepost")


def _empty(figure: Callable[[dict[str, Any]], float]) -> Measure:
    def measure(record: Record) -> Spread | None:
        probe = record["probes"].get("empty")
        return None if probe is None else Spread.of([figure(probe)])

    return measure


def _larger_state(record: Record) -> Spread:
    return Spread.of([one["warm_s"] / one["small_s"] for one in record["rounds"]])


def _restored(record: Record) -> Spread:
    return Spread.of([(one["cold_s"] - one["warm_s"]) / one["decode"]["wall_s"] for one in record["rounds"]])


def _under_limit(record: Record) -> Spread:
    """The slowdown under the limit; the part is only there when the limited one published the right rows."""
    limited = next(name for name in record["systems"] if name.startswith("milepost:"))
    return ratio(walls(record, limited), walls(record, "milepost"))


_A_BASE = 1.3
"""Of the median of the state that epochs write: one that writes more has written a base anew."""


def _base_rewrite(record: Record) -> Spread | None:
    """How many times an epoch that writes a base anew takes as long as the median of those that write changes."""
    epochs = counted(record, "milepost")
    much = _A_BASE * Spread.of([epoch["figures"]["state_bytes"] for epoch in epochs]).median
    bases = [epoch["wall_s"] for epoch in epochs if epoch["figures"]["state_bytes"] > much]
    changes = Spread.of([epoch["wall_s"] for epoch in epochs if epoch["figures"]["state_bytes"] <= much]).median
    return Spread.of([wall_s / changes for wall_s in bases]) if bases else None


CHECKPOINT_PHASES = ("begin", "sync", "async", "commit", "notify", "subsume")
"""Phases of `milepost show` that there would not be without a checkpoint."""


def overhead(epoch: dict[str, Any]) -> float:
    """The share of an epoch's wall time that its checkpoint costs; each of the phases must have been measured."""
    phases = epoch["figures"]["phases"]
    return float(sum(phases[f"{phase}_ms"] for phase in CHECKPOINT_PHASES) / (epoch["wall_s"] * 1000))


def _overhead(record: Record) -> Spread:
    return Spread.of([100 * overhead(epoch) for epoch in counted(record, "milepost")])


def _wall_s(record: Record) -> Spread:
    return Spread.of(walls(record, "milepost"))


def _peak_task_gb(record: Record) -> Spread:
    return Spread.of([max(epoch["peak_task_bytes"] for epoch in counted(record, "milepost")) / 1e9])


def _all() -> Sequence[Target]:
    keyed = (("10 k", "keyed-10k", 3.5, 4), ("1 M", "keyed-1m", 8, 10), ("5 M", "keyed-5m", 15, 18))
    store, backend = "Structured Streaming's better store", "PyFlink SQL's better backend"
    found = []
    for says, name, streaming, flink in keyed:
        part = f"workload/{name}"
        found.append(Target(f"{says} keys: {store}", part, streaming, faster("spark-")))
        beside = "flink/keyed-5m" if name == "keyed-5m" else part
        found.append(Target(f"{says} keys: {backend}", beside, flink, faster("flink-")))
    for says, name, streaming, _ in keyed[:2]:
        what = f"{says} keys, in a store 30 ms away: Structured Streaming"
        found.append(Target(what, f"far/{name}", streaming, faster("spark-", "milepost-far")))
    for says, name, _, _ in keyed[1:]:
        what = f"{says} keys: two executors of one core against one"
        found.append(Target(what, f"executors/{name}", 1.6, against("milepost-executor", "milepost-executors")))
    large = "restore/keyed-5m"
    found.append(Target("5 M keys, against our own 1 M keys", large, 1.2, _larger_state, at_most=True))
    for says, name in (
        ("tumbling window", "window"),
        ("deduplicate", "deduplicate"),
        ("string key", "string-1m"),
        ("composite key", "composite-1m"),
        ("Zipf-skewed key", "zipf-1m"),
    ):
        found.append(Target(f"{says}: {store}", f"workload/{name}", 4, faster("spark-")))
    for says, name in (
        ("interval join of 2 × 1 M rows", "join"),
        ("session windows, 100 k keys", "session"),
        ("latest of 1 M changes, 1 M keys", "latest"),
        ("aggregate over an aggregate", "retract"),
        ("as-of join", "asof"),
    ):
        what = f"{says}: the better of Structured Streaming and PyFlink SQL"
        found.append(Target(what, f"language/{name}", 4, faster(("spark-", "flink-"))))
    what = "join over updates, 1 M changes against 5 M rows: PyFlink SQL"
    found.append(Target(what, "sql/updates-join", 4, faster("flink-")))
    what = "join over updates, 1 M changes against 5 M rows: an epoch"
    found.append(Target(what, "sql/updates-join", 5, _wall_s, at_most=True, unit=" s"))
    what = "join over updates, one key of 1 M rows: peak memory of a task"
    found.append(Target(what, "sql/hot-key", 2, _peak_task_gb, at_most=True, unit=" GB"))
    for name, queries, bound in (("Nexmark", "q3 q4 q9 q20", 4), ("TPC-H", "q3 q5 q10 q18", 2)):
        for query in queries.split():
            part = f"sql/{name.lower().replace('-', '')}-{query}"
            found.append(Target(f"{name} {query}: PyFlink SQL", part, bound, faster("flink-")))
    what = "lookup of 1 M rows in 100 k, against the job without it"
    found.append(Target(what, "language/lookup", 1.3, against("milepost", "milepost-plain"), at_most=True))
    what = "100 k keys by a class with `on_batch`, against the operator"
    found.append(Target(what, "language/keyed-100k", 3, against("milepost-function", "milepost"), at_most=True))
    for (says, name, _, _), bound in zip(keyed, (1.8, 2, 1.8), strict=True):
        what = f"{says} keys: ours against the bare limit"
        found.append(Target(what, f"workload/{name}", bound, _above_the_limit, at_most=True))
    for says, part, bound in (
        ("1 M keys", "process/keyed-1m", 6),
        ("5 M keys", "process/keyed-5m", 10),
        ("1 M keys, after 45 epochs", "aged/keyed-1m", 6),
    ):
        cold = faster("spark-", "milepost-process", "-process")
        served = faster("spark-", "milepost-served", "-process")
        both = faster("spark-", "milepost-served", "-served")
        what = f"new process, {says}"
        found.append(Target(f"{what}: availableNow, both with a cold JVM", part, 1.5, cold))
        found.append(Target(f"{what}, ours on a running server: availableNow, cold", part, bound, served))
        if not part.startswith("aged/"):
            found.append(Target(f"{what}, both on a running server: availableNow", part, bound, both))
    empty, jobs, requests = "workload/keyed-10k", _empty(lambda e: e["spark_jobs"]), _empty(_requests)
    found.append(Target("empty epoch: Spark jobs", empty, 0, jobs, at_most=True, unit=""))
    found.append(Target("empty epoch: store requests", empty, 6, requests, at_most=True, unit=""))
    for says, name, _, _ in keyed[1:]:
        what = f"{says} keys: state bytes per changed key"
        found.append(Target(what, f"workload/{name}", 7, _bytes_per_key, at_most=True, unit=" B"))
    found.append(Target("restore of 5 M keys without cache, against pyarrow", large, 2.5, _restored, at_most=True))
    limited = "5 M keys, 512 MB per worker: runs, slower by"
    found.append(Target(limited, "memory/512 MB", float("inf"), _under_limit, at_most=True))
    what = "checkpoint overhead, 1 M keys"
    found.append(Target(what, "workload/keyed-1m", 8, _overhead, at_most=True, unit=" %"))
    what = "1 M keys: an epoch that writes the base anew, against one that writes changes"
    found.append(Target(what, "rewrite/keyed-1m", 1.5, _base_rewrite, at_most=True))
    return found


def _requests(probe: dict[str, Any]) -> float:
    return float(sum(probe["requests"].values()))


TARGETS = _all()
