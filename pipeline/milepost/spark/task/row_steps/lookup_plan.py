"""Plan of one lookup, and this node's cached copy of its static source.

An epoch's rows are matched with that epoch's copies of the static sources.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch import DimensionSnapshot
from milepost.errors import StateCorrupt
from milepost.operators.lookup import Lookup
from milepost.protocol.records import ObjectStore, checkpoint_of_key
from milepost.sources import cast_to_declared, decode_dimension
from milepost.spark.task.row_steps.lookup_index import LookupIndex, prepare
from milepost.state.cache import MappedTables
from milepost.state.layers import KeyHash
from milepost.storage import read_handle

_FORMAT = "milepost.lookup/2"
"""Format of a node's cached files. Files of another format are created again."""


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """One lookup, with the copy of its static source.

    Attributes:
        schema: schema that the static source declares.
        base: checkpoint that the epoch continues.
    """

    lookup: Lookup
    dimension: DimensionSnapshot
    schema: pa.Schema
    hasher: KeyHash
    cache_directory: str | os.PathLike[str]
    base: int

    @property
    def uid(self) -> str:
        """The operator, which is also the name of its output."""
        return self.lookup.uid

    @property
    def output(self) -> str:
        """Name of its output."""
        return self.lookup.uid

    @property
    def input(self) -> str:
        """The output that it reads."""
        return self.lookup.input

    def open(self, store: ObjectStore) -> LookupIndex:
        """Return the index from this node's cache. The first task on the node fetches and prepares the rows.

        Raises:
            OperatorFailed: a key occurs twice.
            StateCorrupt: the copy is missing or damaged.
        """
        copy = self.dimension.copy
        parts = [_FORMAT, copy.sha256, self.hasher.digest, str(self.schema), self.lookup.identity]
        identity = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
        tables = MappedTables(self.cache_directory, self.lookup.uid, self.base)

        def make() -> pa.Table:
            rows = cast_to_declared(self.lookup.dimension, read_copy(store, self.dimension), self.schema)
            return prepare(self.lookup, rows, self.hasher)

        table = tables.mapped(identity, checkpoint_of_key(copy.key) or 0, make)
        return LookupIndex.of(self.lookup, table, self.hasher)


def read_copy(store: ObjectStore, dimension: DimensionSnapshot) -> pa.Table:
    """Return the rows of a copy. Raises StateCorrupt if it is missing or damaged."""
    body = read_handle(store, dimension.copy)
    try:
        return decode_dimension(body)
    except MemoryError:  # pyarrow's memory error is also an ArrowException
        raise
    except pa.ArrowException as error:
        key = dimension.copy.key
        raise StateCorrupt(f"{key} is no copy of a static source ({error}). Nothing was changed.", key=key) from error
