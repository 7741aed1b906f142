"""State handles: what a subtask acknowledges about its state, and all that a restore needs to find and check it.

A `StateHandle` belongs to one (operator, subtask) and lists immutable runs, oldest first; a run that did not change is
carried by reference into the next checkpoint. JSON is the only stored form, and reading it trusts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milepost.state.runs.stored import corrupt, count, counts, is_int, own_key, record, sha256_hex, span, text


class RunKind(Enum):
    """BASE: every row that was live. DELTA: only the keys that changed, deletes included."""

    BASE = "base"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class RunHandle:
    """Reference to one stored run: a Parquet file, see `runs`.

    Attributes:
        key: object key, relative to the job's root.
        size: bytes. sha256: lower-case hex of the content.
        rows: tombstones included.
        kind: base or delta.
        key_groups: half-open range that the file covers.
        valid: part of it for which this reference counts. After a rescale a file may be current for some of its key
            groups and replaced by a newer base for others.
        offsets: row offset of each key group among its rows in the order of the key hash and, last, `rows`:
            len(key_groups) + 1 numbers.
    """

    key: str
    size: int
    sha256: str
    rows: int
    kind: RunKind
    key_groups: range
    valid: range
    offsets: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "key": self.key,
            "size": self.size,
            "sha256": self.sha256,
            "rows": self.rows,
            "kind": self.kind.value,
            "key_groups": [self.key_groups.start, self.key_groups.stop],
            "valid": [self.valid.start, self.valid.stop],
            "offsets": list(self.offsets),
        }

    @classmethod
    def from_json(cls, document: object) -> RunHandle:
        """Read and check a run handle.

        Raises:
            StateCorrupt: a field is missing, unknown, of another type or inconsistent.
        """
        names = {"key", "size", "sha256", "rows", "kind", "key_groups", "valid", "offsets"}
        fields = record("run handle", document, names)
        key, sha256 = own_key("run handle", fields, "key"), sha256_hex("run handle", fields, "sha256")
        kinds = {kind.value: kind for kind in RunKind}
        kind = text("run handle", fields, "kind")
        if kind not in kinds:
            raise corrupt("run handle", f"kind is {kind!r}, expected base or delta")
        rows = count("run handle", fields, "rows")
        key_groups = span("run handle", fields, "key_groups")
        valid = span("run handle", fields, "valid")
        if valid.start < key_groups.start or valid.stop > key_groups.stop:
            raise corrupt("run handle", f"{key} counts for {valid}, which is not within its {key_groups}")
        offsets = tuple(counts("run handle", fields["offsets"], "offsets"))
        if (
            len(offsets) != len(key_groups) + 1
            or offsets[0] != 0
            or offsets[-1] != rows
            or list(offsets) != sorted(offsets)
        ):
            raise corrupt(
                "run handle", f"the offsets of {key} do not cover {rows} rows in {len(key_groups)} key groups"
            )
        size = count("run handle", fields, "size")
        return cls(key, size, sha256, rows, kinds[kind], key_groups, valid, offsets)


@dataclass(frozen=True, slots=True)
class StateHandle:
    """The state of one operator in one subtask at one checkpoint.

    Attributes:
        uid: operator.
        key_groups: half-open range this subtask owns; its runs may cover more (after a rescale).
        max_parallelism: number of key groups of the job.
        hash_version: of the key hash that placed the rows.
        runs: oldest first; a later run wins over an earlier one.
        timers: (key group, earliest timer that has not fired yet, us), ascending, groups without one left out.
        live_rows: rows alive at this checkpoint.
    """

    uid: str
    key_groups: range
    max_parallelism: int
    hash_version: int
    runs: tuple[RunHandle, ...] = ()
    timers: tuple[tuple[int, int], ...] = ()
    live_rows: int = 0

    @property
    def full_bytes(self) -> int:
        """Bytes of all files this state refers to."""
        return sum({run.key: run.size for run in self.runs}.values())

    def to_json(self) -> dict[str, object]:
        return {
            "uid": self.uid,
            "key_groups": [self.key_groups.start, self.key_groups.stop],
            "max_parallelism": self.max_parallelism,
            "hash_version": self.hash_version,
            "runs": [run.to_json() for run in self.runs],
            "timers": [list(timer) for timer in self.timers],
            "live_rows": self.live_rows,
        }

    @classmethod
    def from_json(cls, document: object) -> StateHandle:
        """Read and check a state handle.

        Raises:
            StateCorrupt: a field is missing, unknown, of another type or inconsistent.
        """
        what = "state handle"
        fields = record(
            what, document, {"uid", "key_groups", "max_parallelism", "hash_version", "runs", "timers", "live_rows"}
        )
        key_groups = span(what, fields, "key_groups")
        max_parallelism = count(what, fields, "max_parallelism")
        if key_groups.stop > max_parallelism:
            raise corrupt(what, f"its key groups end at {key_groups.stop}, expected at most {max_parallelism}")
        runs, timers = fields["runs"], fields["timers"]
        if not isinstance(runs, list) or not isinstance(timers, list):
            raise corrupt(what, "runs and timers must be lists")
        pairs = []
        for timer in timers:
            if not isinstance(timer, list) or len(timer) != 2 or not all(is_int(part) for part in timer):
                raise corrupt(what, f"timer {timer!r} is not a pair of integers")
            if timer[0] not in key_groups:
                raise corrupt(what, f"timer {timer!r} is outside its key groups")
            pairs.append((timer[0], timer[1]))
        return cls(
            uid=text(what, fields, "uid"),
            key_groups=key_groups,
            max_parallelism=max_parallelism,
            hash_version=count(what, fields, "hash_version"),
            runs=tuple(RunHandle.from_json(run) for run in runs),
            timers=tuple(pairs),
            live_rows=count(what, fields, "live_rows"),
        )
