"""Compare the text of nodes with that of a checkpoint's spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.recorded_spec import recorded_spec
from milepost.jobspec.graph import (
    RENAMED_FROM,
    SinkInput,
    fingerprint,
    is_same_query,
    reads_statement,
    state_fingerprint,
)
from milepost.jobspec.job import JobSpec


class RecordedTexts:
    """The text from the sources to each node, in a spec and in that of a checkpoint."""

    def __init__(self, spec: JobSpec, base: CheckpointMetadata) -> None:
        self._spec, self._before = spec, recorded_spec(base)
        sources = base.signatures.get("sources", {}).items()
        self._seen: dict[str, str] = {}
        self._seen_before = {one[RENAMED_FROM]: name for name, one in sources if RENAMED_FROM in one}

    def is_governed(self, uid: str, before: Mapping[str, Any]) -> bool:
        """Return whether a node reads a statement, or is a step of one, now or in the recorded spec."""
        return reads_statement(self._spec, uid) or self._was_governed(str(before.get(RENAMED_FROM, uid)))

    def is_same(self, uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether a node has the recorded text."""
        return self._is_same(uid, str(before.get(RENAMED_FROM, uid)), before, after)

    def is_same_state(self, uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether an operator's state has the recorded text. Its aggregates are compared as columns."""
        former = str(before.get(RENAMED_FROM, uid))
        if self._before is None or not _has(self._before, former):
            return is_same_query(before, after)
        recorded = state_fingerprint(self._before, former, self._seen_before)
        return recorded == state_fingerprint(self._spec, uid, self._seen)

    def of_sink(self, rows: SinkInput, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether a sink shows rows with the recorded text, and whether they are those of a statement."""
        inputs = () if self._before is None else (one.input for one in self._before.sinks if one.name == rows.sink)
        former = next((name.removesuffix(rows.part) for name in inputs), "")
        governed = reads_statement(self._spec, rows.uid) or self._was_governed(former)
        return self._is_same(rows.uid, former, before, after), governed

    def _is_same(self, uid: str, former: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        if self._before is None or not _has(self._before, former):
            return is_same_query(before, after)
        return fingerprint(self._before, former, self._seen_before) == fingerprint(self._spec, uid, self._seen)

    def _was_governed(self, former: str) -> bool:
        return self._before is not None and _has(self._before, former) and reads_statement(self._before, former)


def _has(spec: JobSpec, name: str) -> bool:
    return name in spec.sources or any(operator.uid == name for operator in spec.operators)
