"""Propose the declaration of a file source from a bounded sample of its files."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.inference.infer import infer_source as infer_source
    from milepost.sources.inference.proposal import EventTimeCandidate as EventTimeCandidate
    from milepost.sources.inference.proposal import ProposedColumn as ProposedColumn
    from milepost.sources.inference.proposal import ProposedSource as ProposedSource
    from milepost.sources.inference.proposal import SampleSize as SampleSize
else:
    __getattr__, __dir__ = lazy_exports(__name__)
