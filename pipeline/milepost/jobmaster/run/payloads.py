"""Read what the subtasks of an epoch acknowledged for one source, operator or sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from milepost.protocol.exchange import Acknowledgement, VerifiedAnswers


def iter_payloads(verified: VerifiedAnswers, section: str, name: str) -> Iterator[tuple[Acknowledgement, Any]]:
    """Yield each acknowledgement that mentions one source, operator or sink, with its payload, in subtask order.

    Args:
        section: ``sources``, ``operators`` or ``sinks``. name: of the source or sink, or uid of the operator.
    """
    for ack in verified.acknowledgements:
        payloads = ack.payload.get(section)
        if isinstance(payloads, Mapping) and name in payloads:
            yield ack, payloads[name]


def payloads_of(verified: VerifiedAnswers, section: str, name: str) -> list[Any]:
    """Return the payloads alone; arguments as of `iter_payloads`."""
    return [payload for _, payload in iter_payloads(verified, section, name)]
