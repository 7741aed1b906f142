"""Build the operator of a `latest` spec."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.operators.contract import BuildOptions, OperatorInput, StatefulOperator
from milepost.operators.latest.newest import LatestByKey
from milepost.operators.latest.partial import PartialByKey
from milepost.operators.latest.spec import LatestOperator


def build(spec: LatestOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    return PartialByKey(spec, input_) if spec.is_partial else LatestByKey(spec, input_)
