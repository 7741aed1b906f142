"""A veto holds what a person needs to see of a refused epoch: failing rows and observed values.

Rows of data are in no verdict, manifest, log or message. They are in one object per vetoed checkpoint, which `show` and
the Checkpoints page read: at most `MAX_BYTES`, of each row only the columns that the expectation looks at and the
sink's key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from milepost.dataflow.quality.gate import columns_of, failing_rows
from milepost.dataflow.quality.verdict import ExpectationResult, GateVerdict, Verdict
from milepost.protocol.codec.records import from_json, load, to_json
from milepost.spec.job.spec import QualitySpec

MAX_BYTES = 64_000
_MAX_TEXT = 200
"""Of a value: what is longer ends in an ellipsis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(ExpectationResult):
    """One expectation that vetoed an epoch: its result, with the counts, and what it is about.

    Attributes:
        observed_value: of an aggregate or the whole table, as JSON; None for one that looks at single rows.
        rows: some of the failing ones, in the order of the table: columns of the expectation and the sink's key.
    """

    sink: str
    observed_value: Any
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Veto:
    """All that vetoed one checkpoint.

    Attributes:
        shortened: rows or observed values were left out, because the object would have been too large.
    """

    stored_format: ClassVar[str] = "milepost.veto/1"

    checkpoint_id: int
    refusals: tuple[Refusal, ...]
    shortened: bool = False

    def encode(self) -> bytes:
        """Return its JSON, at most `MAX_BYTES`: with fewer rows of each expectation, and at last without values."""
        fitting = self
        limit = max((len(refusal.rows) for refusal in self.refusals), default=0)
        while len(body := _dumps(to_json(fitting))) > MAX_BYTES:
            if limit:
                limit //= 2
                shorter = tuple(replace(one, rows=one.rows[:limit]) for one in fitting.refusals)
            elif any(one.observed_value is not None for one in fitting.refusals):
                shorter = tuple(replace(one, observed_value=None) for one in fitting.refusals)
            else:
                shorter = fitting.refusals[: len(fitting.refusals) // 2]
            fitting = replace(fitting, refusals=shorter, shortened=True)
        return body


def veto_of(
    checkpoint_id: int,
    verdict: GateVerdict,
    specs: Sequence[QualitySpec],
    tables: Mapping[str, pa.Table],
    keys: Mapping[str, Sequence[str]],
) -> Veto:
    """Look again at the rows of a vetoed epoch, and return what refused it.

    Args:
        specs: the suites that the verdict is of. tables: the judged rows, by sink. keys: of each sink its key columns.
    Raises: as `gate.evaluate`.
    """
    refusals = []
    for spec, answer in zip(specs, verdict.verdicts, strict=True):
        wanted = _vetoing(answer)
        table = tables[spec.sink]
        found = failing_rows(spec, wanted, table) if wanted else {}
        for number in wanted:
            columns = list(dict.fromkeys([*columns_of(spec.expectations[number]), *keys[spec.sink]]))
            shown = [name for name in columns if name in table.column_names]
            positions, observed = found.get(number, ((), None))
            taken = list(positions[: spec.rows])
            told = tuple({name: _json_value(_value(table[name][at])) for name in shown} for at in taken)
            result = to_json(answer.expectations[number])
            refusals.append(Refusal(**result, sink=spec.sink, observed_value=_json_value(observed), rows=told))
    return Veto(checkpoint_id, tuple(refusals))


def decode_veto(body: bytes, what: str) -> dict[str, Any]:
    """Return the document of a veto, for people and programs. Raises StateCorrupt, naming `what`."""
    document: Any = load(body, what)
    from_json(Veto, document, what)
    return dict(document)


def _vetoing(verdict: Verdict) -> list[int]:
    """Return the places of the expectations that veto: critical ones that are not met, and all that raised."""
    return [
        number
        for number, result in enumerate(verdict.expectations)
        if result.exception is not None or (not result.success and result.severity == "critical")
    ]


def _dumps(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode(errors="replace")


def _value(scalar: pa.Scalar) -> Any:
    """Return the value as Python has it; where Python has none, such as for a year beyond 9999, as text."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        return f"{getattr(scalar, 'value', 'a value')} as {scalar.type}"


def _json_value(value: Any) -> Any:
    """Return the value as JSON has it.

    A number or truth value as it is, NaN and all else as text, cut where it is long.
    """
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # of numpy
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
