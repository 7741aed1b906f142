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
        uid: operator.
        schema: schema of its state rows, all nullable, without metadata.
        stored: the same columns with their stored names.
        key_groups: key groups that the subtask owns, out of max_parallelism.
        table: name of the state table; "" if the operator has only one.
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
            schema: schema of its rows, with stored names. Runs of older schemas are converted by them (`evolution`).
        Raises:
            InvalidRequest: max_parallelism is out of bounds, or a column's type cannot be a key.
        """
        check_max_parallelism(max_parallelism)
        plain = pa.schema([pa.field(field.name, field.type) for field in schema])
        for name in keys.key:
            check_key_type(name, plain.field(name).type)
        return cls(uid, keys, plain, schema, key_groups, max_parallelism, table)


def _map_sequentially(get: Callable[[Any], bytes], items: Sequence[Any]) -> list[bytes]:
    return [get(item) for item in items]


@dataclass(frozen=True, slots=True)
class CheckpointObjects:
    """Objects of a restored checkpoint, each stored at the key of its handle.

    Attributes:
        checkpoint_id, job: for messages, and for the cache, which deletes entries that the checkpoint replaced.
        bodies: cache of verified run bodies, by key. None: no cache.
        each: applies a function to each item, possibly in parallel, and returns the results in order.
    """

    store: ObjectStore
    checkpoint_id: int
    job: str
    bodies: MutableMapping[str, bytes] | None = None
    each: Callable[[Callable[[Any], bytes], Sequence[Any]], list[bytes]] = _map_sequentially

    def unusable(self, what: str, key: str, uid: str, problem: str) -> StateCorrupt:
        """Return the error of an object that is missing, altered or does not match its handle."""
        return StateCorrupt(
            f"checkpoint {self.checkpoint_id}: {what} {key} of {uid!r} cannot be used: {problem}. Nothing was changed.",
            hint=f"Run `milepost verify {self.job}` to list the damaged objects, and restore them from a copy.",
            checkpoint_id=self.checkpoint_id,
            uid=uid,
            key=key,
        )
