"""Leave out of a checkpoint the state and tables that the next epoch rebuilds."""

from __future__ import annotations

from dataclasses import replace

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.edits.verdicts import query_edits
from milepost.jobspec.graph import JobGraph
from milepost.jobspec.job import JobSpec


def without_refilled(spec: JobSpec, graph: JobGraph, base: CheckpointMetadata) -> CheckpointMetadata:
    """Return the checkpoint that an epoch continues: without the state that it refills and the sinks that it replaces.

    They start as new operators and sinks do, with all current rows upstream. An epoch is only opened if its edits were
    accepted, so edited state that is not refilled continues.
    """
    edits = query_edits(spec, graph, base, from_now_on=True)
    if not edits.refilled and not edits.replaced:
        return base
    operators = {uid: one for uid, one in base.signatures["operators"].items() if uid not in edits.refilled}
    return replace(
        base,
        operators={uid: one for uid, one in base.operators.items() if uid not in edits.refilled},
        sinks={name: one for name, one in base.sinks.items() if name not in edits.replaced},
        signatures={**base.signatures, "operators": operators},
    )
