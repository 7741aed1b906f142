"""The veto object of a refused epoch: failing rows, observed values, and what the epoch read.

Verdicts, manifests, logs and messages never contain rows. Failing rows are stored in one object per vetoed checkpoint,
which `show` and the Checkpoints page read. It has at most `MAX_BYTES`, and of each row only the columns that the
expectation checks and the sink's key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from milepost.codec import OmitNone, from_json, load, to_json
from milepost.jobspec.job import QualitySpec
from milepost.quality.evidence import Evidence
from milepost.quality.verdict import ExpectationResult, GateVerdict, current_counts

MAX_BYTES = 64_000

NAMED_OBJECTS = 20
"""Maximum number of objects that a veto names, per source."""

_FEW_NAMES = 3
"""Objects per source that a veto still names if it would be too large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(ExpectationResult):
    """One expectation that vetoed an epoch: its result, and the evidence for it.

    Attributes:
        observed_value: value of an aggregate or table expectation, as JSON; None for one that checks single rows.
        rows: some of the failing rows, in table order: the columns of the expectation and the sink's key.
    """

    sink: str
    observed_value: Any
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class VetoedInput:
    """What a vetoed epoch read from a source.

    Attributes:
        first: keys of the first of its objects, in reading order, at most `NAMED_OBJECTS`.
        records: range in the log of a landed source, as text; None for files.
    """

    rows: int
    objects: int
    first: tuple[str, ...]
    records: str | None


@dataclass(frozen=True, slots=True)
class Veto:
    """Every expectation that vetoed one checkpoint.

    Attributes:
        read: what the epoch read, by source; None if an older version wrote the veto.
        shortened: names, rows or observed values were left out because the object would have been too large.
    """

    stored_format: ClassVar[str] = "milepost.veto/1"

    checkpoint_id: int
    refusals: tuple[Refusal, ...]
    shortened: bool = False
    read: OmitNone[Mapping[str, VetoedInput]] = None

    def encode(self) -> bytes:
        """Return its JSON, at most `MAX_BYTES`.

        If it is too large, it names fewer objects, then none. Then the limit of rows per expectation is halved (20, 10,
        5, 2, 1, 0) until it fits. Then the observed values are left out, and then half of the refusals.
        """
        fitting = self
        limit = max((len(refusal.rows) for refusal in self.refusals), default=0)
        while len(body := _dumps(to_json(fitting))) > MAX_BYTES:
            names = max((len(one.first) for one in (fitting.read or {}).values()), default=0)
            if names:
                read = _with_names(fitting.read, _FEW_NAMES if names > _FEW_NAMES else 0)
                fitting = replace(fitting, read=read, shortened=True)
                continue
            if limit:
                limit //= 2
                shorter = tuple(replace(refusal, rows=refusal.rows[:limit]) for refusal in fitting.refusals)
            elif any(refusal.observed_value is not None for refusal in fitting.refusals):
                shorter = tuple(replace(refusal, observed_value=None) for refusal in fitting.refusals)
            elif fitting.refusals:
                shorter = fitting.refusals[: len(fitting.refusals) // 2]
            else:
                shorter, fitting = (), replace(fitting, read=None)
            fitting = replace(fitting, refusals=shorter, shortened=True)
        return body


def build_veto(
    checkpoint_id: int,
    verdict: GateVerdict,
    specs: Sequence[QualitySpec],
    evidence: Mapping[str, Mapping[int, Evidence]],
    read: Mapping[str, VetoedInput] | None = None,
) -> Veto:
    """Build the veto of an epoch.

    Args:
        specs: the suites that were judged, in the order of the verdicts.
        evidence: by sink and position in its suite.
        read: what the epoch read, by source.
    """
    refusals = []
    for spec, answer in zip(specs, verdict.verdicts, strict=True):
        for number in answer.vetoing:
            shown = evidence[spec.sink].get(number, Evidence())
            result = to_json(answer.expectations[number])
            refusals.append(Refusal(**result, sink=spec.sink, observed_value=shown.observed_value, rows=shown.rows))
    return Veto(checkpoint_id, tuple(refusals), read=read)


def decode_veto(body: bytes, what: str) -> dict[str, Any]:
    """Return a stored veto as a JSON document. Raises StateCorrupt, naming `what`."""
    document: Any = load(body, what)
    from_json(Veto, {"read": None, **document}, what)  # an older version did not record it
    refusals = [{**one, "observed": current_counts(one["observed"])} for one in document["refusals"]]
    return {**document, "refusals": refusals}


def _with_names(read: Mapping[str, VetoedInput] | None, most: int) -> Mapping[str, VetoedInput]:
    return {name: replace(one, first=one.first[:most]) for name, one in (read or {}).items()}


def _dumps(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode(errors="replace")
