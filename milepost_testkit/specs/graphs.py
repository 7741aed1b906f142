"""The graph of a spec that is not in a file."""

from __future__ import annotations

from milepost.spec.graph.graph import JobGraph, analyse
from milepost.spec.job.spec import JobSpec
from milepost.spec.values.problems import invalid_spec


def build_graph(spec: JobSpec) -> JobGraph:
    """Return the graph. Raises InvalidRequest with all problems, without places in a file."""
    graph, problems = analyse(spec)
    if graph is None:
        raise invalid_spec(problems, file=f"job {spec.name}", keys={}, values={})
    return graph
