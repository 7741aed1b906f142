"""The targets, and what a set of results says of each: met, missed, or not measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bench.statistics import Spread, ratio

Parts = dict[str, dict[str, Any]]
"""Part name -> its record, as `parts.py` names them."""


class Verdict(Enum):
    """What the results say of a target."""

    MET = "met"
    MISSED = "**missed**"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Target:
    """One promise.

    Attributes:
        says: what is compared. bound: of the median; at least it, or with `at_most` at most it.
        unit: after the figure. measure: the figure, or None when the results do not have it.
    """

    says: str
    bound: float
    measure: Callable[[Parts], Spread | None]
    at_most: bool = False
    unit: str = " ×"

    def judge(self, parts: Parts) -> tuple[Spread | None, Verdict]:
        """The figure and the verdict on it."""
        found = self.measure(parts)
        if found is None:
            return None, Verdict.UNKNOWN
        kept = found.median <= self.bound if self.at_most else found.median >= self.bound
        return found, Verdict.MET if kept else Verdict.MISSED


def counted(record: dict[str, Any], system: str) -> list[dict[str, Any]]:
    """A system's epochs that count, in order."""
    return [epoch for epoch in record["systems"][system]["epochs"] if epoch["counted"]]


def walls(record: dict[str, Any], system: str) -> list[float]:
    """Wall seconds of a system's epochs that count, in order."""
    return [epoch["wall_s"] for epoch in counted(record, system)]


def fastest(record: dict[str, Any], begins: str, ends: str = "") -> str | None:
    """The system with the lowest median among those whose name begins and ends so; None when none was measured."""
    names = [name for name in record["systems"] if name.startswith(begins) and name.endswith(ends)]
    return min(names, key=lambda name: Spread.of(walls(record, name)).median, default=None)


def _faster(part: str, rivals: str, ours: str = "milepost", ends: str = "") -> Callable[[Parts], Spread | None]:
    """How many times the best of the rivals, whose names begin and end so, takes as long as ours."""

    def measure(parts: Parts) -> Spread | None:
        record = parts.get(part, {})
        if "systems" not in record or ours not in record["systems"]:
            return None
        rival = fastest(record, rivals, ends)
        return None if rival is None else ratio(walls(record, rival), walls(record, ours))

    return measure


def _above_the_limit(part: str) -> Callable[[Parts], Spread | None]:
    def measure(parts: Parts) -> Spread | None:
        record = parts.get(part, {})
        limit = fastest(record, "limit-") if "systems" in record else None
        return None if limit is None else ratio(walls(record, "milepost"), walls(record, limit))

    return measure


def _larger_state(parts: Parts) -> Spread | None:
    """Two parts have no rounds in common: their medians are divided."""
    large, small = parts.get("workload/keyed-5m", {}), parts.get("workload/keyed-1m", {})
    if "systems" not in large or "systems" not in small:
        return None
    return Spread.of([Spread.of(walls(large, "milepost")).median / Spread.of(walls(small, "milepost")).median])


def state_bytes_per_key(record: dict[str, Any], system: str) -> Spread | None:
    """Bytes of state that an epoch writes per key that it changes; None when the system does not say."""
    epochs = [epoch for epoch in counted(record, system) if "state_bytes" in epoch["figures"]]
    changed = record["changed_keys"]
    values = [e["figures"]["state_bytes"] / changed[e["number"]] for e in epochs if changed[e["number"]]]
    return Spread.of(values) if values else None


def _bytes_per_key(part: str) -> Callable[[Parts], Spread | None]:
    def measure(parts: Parts) -> Spread | None:
        record = parts.get(part, {})
        return state_bytes_per_key(record, "milepost") if "systems" in record else None

    return measure


def _empty(figure: Callable[[dict[str, Any]], float]) -> Callable[[Parts], Spread | None]:
    def measure(parts: Parts) -> Spread | None:
        probes = [record["probes"]["empty"] for record in parts.values() if "empty" in record.get("probes", {})]
        return Spread.of([figure(probe) for probe in probes]) if probes else None

    return measure


def _restored(parts: Parts) -> Spread | None:
    rounds = parts.get("restore/keyed-5m", {}).get("rounds")
    if not rounds:
        return None
    return Spread.of([(one["cold_s"] - one["warm_s"]) / one["decode"]["wall_s"] for one in rounds])


def _under_limit(parts: Parts) -> Spread | None:
    """The slowdown under the limit; the part is only there when the limited one published the right rows."""
    record = parts.get("memory/512 MB", {})
    if "systems" not in record:
        return None
    limited = next(name for name in record["systems"] if name.startswith("milepost:"))
    return ratio(walls(record, limited), walls(record, "milepost"))


CHECKPOINT_PHASES = ("begin", "sync", "async", "commit", "notify", "subsume")
"""Phases of `milepost show` that there would not be without a checkpoint."""


def overhead(epoch: dict[str, Any]) -> float:
    """The share of an epoch's wall time that its checkpoint costs; each of the phases must have been measured."""
    phases = epoch["figures"]["phases"]
    return float(sum(phases[f"{phase}_ms"] for phase in CHECKPOINT_PHASES) / (epoch["wall_s"] * 1000))


def _overhead(parts: Parts) -> Spread | None:
    record = parts.get("workload/keyed-1m", {})
    if "systems" not in record:
        return None
    return Spread.of([100 * overhead(epoch) for epoch in counted(record, "milepost")])


def _all() -> Sequence[Target]:
    keyed = (("10 k", "keyed-10k", 3, 4), ("1 M", "keyed-1m", 7, 8), ("5 M", "keyed-5m", 14, 15))
    found = []
    for says, name, streaming, flink in keyed:
        part = f"workload/{name}"
        found.append(Target(f"{says} keys: Structured Streaming's better store", streaming, _faster(part, "spark-")))
        found.append(Target(f"{says} keys: PyFlink SQL's better backend", flink, _faster(part, "flink-")))
    found.append(Target("5 M keys, against our own 1 M keys", 1.2, _larger_state, at_most=True))
    for says, name in (
        ("tumbling window", "window"),
        ("deduplicate", "deduplicate"),
        ("string key", "string-1m"),
        ("composite key", "composite-1m"),
        ("Zipf-skewed key", "zipf-1m"),
    ):
        found.append(Target(f"{says}: Structured Streaming's better store", 4, _faster(f"workload/{name}", "spark-")))
    for says, name, _, _ in keyed:
        found.append(
            Target(f"{says} keys: ours against the bare limit", 1.8, _above_the_limit(f"workload/{name}"), at_most=True)
        )
    for says, name, bound in (("1 M", "keyed-1m", 6), ("5 M", "keyed-5m", 10)):
        part = f"process/{name}"
        cold = _faster(part, "spark-", "milepost-process", "-process")
        served = _faster(part, "spark-", "milepost-served", "-process")
        both = _faster(part, "spark-", "milepost-served", "-served")
        found.append(Target(f"new process, {says} keys: availableNow, both with a cold JVM", 1.5, cold))
        found.append(Target(f"new process, {says} keys, ours on a running server: availableNow, cold", bound, served))
        found.append(Target(f"new process, {says} keys, both on a running server: availableNow", bound, both))
    found.append(Target("empty epoch: Spark jobs", 0, _empty(lambda e: e["spark_jobs"]), at_most=True, unit=""))
    found.append(
        Target("empty epoch: store requests", 6, _empty(lambda e: sum(e["requests"].values())), at_most=True, unit="")
    )
    for says, name, _, _ in keyed[1:]:
        per_key = _bytes_per_key(f"workload/{name}")
        found.append(Target(f"{says} keys: state bytes per changed key", 7, per_key, at_most=True, unit=" B"))
    found.append(Target("restore of 5 M keys without cache, against pyarrow", 2, _restored, at_most=True))
    found.append(Target("5 M keys, 512 MB per worker: runs, slower by", float("inf"), _under_limit, at_most=True))
    found.append(Target("checkpoint overhead, 1 M keys", 10, _overhead, at_most=True, unit=" %"))
    return found


TARGETS = _all()
