"""Identify the state to restore: operator, key-group range, checkpoint."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.errors import StateCorrupt
from milepost.protocol.records import ObjectStore
from milepost.state.layers.key_groups import check_key_type, check_max_parallelism
from milepost.state.layers.layer import KeySpec


@dataclass(frozen=True, slots=True)
class StateIdentity:
    """Identifies the state of one subtask of an operator. Created by `of`.

    Attributes:
        uid: operator. schema: of its state rows, all nullable, without metadata. stored: the same columns with their
            names in runs.
        key_groups: what the subtask owns, of max_parallelism.
        table: which one of the operator's; "" of an operator that keeps one.
    """

    uid: str
    keys: KeySpec
    schema: pa.Schema
    stored: pa.Schema
    key_groups: range
    max_parallelism: int
    table: str = ""

    @classmethod
    def of(
        cls, uid: str, keys: KeySpec, schema: pa.Schema, key_groups: range, max_parallelism: int, *, table: str = ""
    ) -> StateIdentity:
        """Return the identity of a part of an operator's table.

        Args:
            schema: of its rows; runs of an older one are converted by the stored names in it (see `evolution`).
        Raises:
            InvalidRequest: max_parallelism or the type of a key does not fit.
        """
        check_max_parallelism(max_parallelism)
        plain = pa.schema([pa.field(field.name, field.type) for field in schema])
        for name in keys.key:
            check_key_type(name, plain.field(name).type)
        return cls(uid, keys, plain, schema, key_groups, max_parallelism, table)


def _one_by_one(ask: Callable[[Any], bytes], subjects: Sequence[Any]) -> list[bytes]:
    return [ask(subject) for subject in subjects]


@dataclass(frozen=True, slots=True)
class CheckpointObjects:
    """Objects of a restored checkpoint, each stored at the key of its handle.

    Attributes:
        checkpoint_id, job: for messages, and for what the cache may forget.
        bodies: of runs that were read and checked before, by key; those read now are added. None: none are kept.
        each: asks the store for each of some objects, and returns the answers in order.
    """

    store: ObjectStore
    checkpoint_id: int
    job: str
    bodies: MutableMapping[str, bytes] | None = None
    each: Callable[[Callable[[Any], bytes], Sequence[Any]], list[bytes]] = _one_by_one

    def unusable(self, what: str, key: str, uid: str, problem: str) -> StateCorrupt:
        """Return the error of an object that is missing, altered or not what its handle says."""
        return StateCorrupt(
            f"checkpoint {self.checkpoint_id}: {what} {key} of {uid!r} cannot be used: {problem}. The checkpoint stays "
            "as it is; nothing was changed.",
            hint=f"Run `milepost verify {self.job}` for all that is broken; restore it from a copy of the store.",
            checkpoint_id=self.checkpoint_id,
            uid=uid,
            key=key,
        )
