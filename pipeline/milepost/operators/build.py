"""Factory that builds runnable operators from their spec and the schemas of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from milepost.operators.base.operator_spec import StatefulSpec
from milepost.operators.contract import BuildOptions, OperatorInput, StatefulOperator


def build_operator(
    spec: StatefulSpec, inputs: Sequence[OperatorInput], options: BuildOptions = BuildOptions()
) -> StatefulOperator:
    """Return the operator of a spec, by `build` in the `run.py` of its kind's folder.

    Args:
        inputs: its inputs, in the order of the spec.
    Raises:
        InvalidRequest: a column is missing or has an unsupported type, or required event time is missing.
    """
    run = import_module(f"milepost.operators.{spec.kind}.run")
    operator: StatefulOperator = run.build(spec, inputs, options)
    return operator
