"""The facet `milepost_checkpoint` of a run: which checkpoint an epoch ends in, for who wants to go back to it."""

from __future__ import annotations

import attr
from openlineage.client.facet_v2 import RunFacet

from milepost import __version__

PRODUCER = f"urn:milepost:{__version__}"
NAME = "milepost_checkpoint"
SCHEMA_URL = "urn:milepost:openlineage:1-0-0:MilepostCheckpointRunFacet.json#/$defs/MilepostCheckpointRunFacet"
"""Of the schema in `checkpoint_facet.schema.json`. A name and no address: there is no host that is ours."""


@attr.define
class MilepostCheckpointRunFacet(RunFacet):
    """A checkpoint; as `milepost show` has it.

    Attributes:
        kind: checkpoint or savepoint. status: pending, completed or aborted.
        token: fencing token. base: the checkpoint that it continues, 0 for the empty state.
        watermark: after it, ISO 8601, or "end"; None: not known yet, or there is none.
        reason: why it was aborted, as a name of `milepost`'s abort reasons; None: it was not.
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

    @staticmethod
    def _get_schema() -> str:
        return SCHEMA_URL
