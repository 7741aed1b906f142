"""Find statements that this version compiles to other steps than the ones a checkpoint records."""

from __future__ import annotations

from functools import cache

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.recorded_spec import recorded_spec
from milepost.jobspec.graph import fingerprint, statement_of
from milepost.jobspec.job import JobSpec


def recompiled_statements(spec: JobSpec, base: CheckpointMetadata) -> frozenset[str]:
    """Return the statements with a query other than the recorded one although they were not edited.

    All that they read has the recorded text: sources, operators of the spec, and other statements.
    """
    before = recorded_spec(base)
    if before is None or any(before.sources.get(name) != source for name, source in spec.sources.items()):
        return frozenset()
    operators = {operator.uid: operator for operator in spec.operators}
    recorded = {operator.uid: operator for operator in before.operators}

    @cache
    def is_recorded(uid: str) -> bool:
        if uid in spec.sources:
            return True
        statement = statement_of(spec, uid)
        if statement is None:
            is_same = recorded.get(uid) == operators[uid]
        else:
            is_same = before.statements.get(statement) == spec.statements[statement]
        return is_same and all(map(is_recorded, operators[uid].inputs))

    named = [name for name in spec.statements if name in operators and name in recorded]
    return frozenset(
        name for name in named if is_recorded(name) and fingerprint(before, name) != fingerprint(spec, name)
    )


def describe_recompiled(row: dict[str, str], base: CheckpointMetadata) -> None:
    """Complete the row of a refused operator or sink of such a statement."""
    row["detail"] = f"this version of Milepost compiles the same SQL to other steps: {row['detail']}"
    row["recompiled"] = str(base.checkpoint_id)
