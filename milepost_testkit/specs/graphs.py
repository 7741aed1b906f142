"""The graph of a spec that is not in a file."""

from __future__ import annotations

from milepost.jobspec.graph.graph import JobGraph, analyse
from milepost.jobspec.job.spec import JobSpec
from milepost.language.problems import invalid_spec


def build_graph(spec: JobSpec) -> JobGraph:
    """Return the graph. Raises InvalidRequest with all problems, without places in a file."""
    graph, problems = analyse(spec)
    if graph is None:
        raise invalid_spec(problems, file=f"job {spec.name}", keys={}, values={})
    return graph
