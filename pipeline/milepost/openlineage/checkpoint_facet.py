"""Run facet `milepost_checkpoint`, which names the checkpoint that an epoch ends in."""

from __future__ import annotations

import attr
from openlineage.client.facet_v2 import RunFacet

from milepost import __version__

PRODUCER = f"urn:milepost:{__version__}"
NAME = "milepost_checkpoint"
SCHEMA_URL = "urn:milepost:openlineage:1-0-0:MilepostCheckpointRunFacet.json#/$defs/MilepostCheckpointRunFacet"
"""Identifies the schema in `checkpoint_facet.schema.json`. It is a URN because the project has no host to serve it."""


@attr.define
class MilepostCheckpointRunFacet(RunFacet):
    """A checkpoint, with the values that `milepost show` prints.

    Attributes:
        kind: checkpoint or savepoint.
        status: pending, completed or aborted.
        token: fencing token.
        base: checkpoint that it continues. 0 is the empty state.
        watermark: watermark after the checkpoint as ISO 8601, or "end". None: not yet known, or there is none.
        reason: name of the abort reason. None if it was not aborted.
        gaps: number of gaps in a source's log that the epoch passed, by source: there, input was lost. None: no gap.
        voids: number of records of a source's log that the epoch skipped because they proved false, by source. None:
            none.
    """

    checkpointId: int
    epoch: int
    timeline: str
    kind: str
    status: str
    token: int
    base: int
    watermark: str | None = None
    reason: str | None = None
    gaps: dict[str, int] | None = None
    voids: dict[str, int] | None = None

    @staticmethod
    def _get_schema() -> str:
        return SCHEMA_URL
