"""A veto holds what a person needs to see of a refused epoch: failing rows and observed values.

Rows of data are in no verdict, manifest, log or message. They are in one object per vetoed checkpoint, which `show` and
the Checkpoints page read: at most `MAX_BYTES`, of each row only the columns that the expectation looks at and the
sink's key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from milepost.codec.records import from_json, load, to_json
from milepost.jobspec.job.spec import QualitySpec
from milepost.quality.evidence import Evidence
from milepost.quality.verdict import ExpectationResult, GateVerdict

MAX_BYTES = 64_000


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


def build_veto(
    checkpoint_id: int,
    verdict: GateVerdict,
    specs: Sequence[QualitySpec],
    found: Mapping[str, Mapping[int, Evidence]],
) -> Veto:
    """Return what refused a vetoed epoch.

    Args:
        specs: the suites that the verdict is of. found: what was seen, by sink and place in its suite.
    """
    refusals = []
    for spec, answer in zip(specs, verdict.verdicts, strict=True):
        for number in answer.vetoing:
            seen = found[spec.sink].get(number, Evidence())
            result = to_json(answer.expectations[number])
            refusals.append(Refusal(**result, sink=spec.sink, observed_value=seen.observed_value, rows=seen.rows))
    return Veto(checkpoint_id, tuple(refusals))


def decode_veto(body: bytes, what: str) -> dict[str, Any]:
    """Return the document of a veto, for people and programs. Raises StateCorrupt, naming `what`."""
    document: Any = load(body, what)
    from_json(Veto, document, what)
    return dict(document)


def _dumps(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode(errors="replace")
