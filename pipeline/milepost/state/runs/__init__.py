"""Runs: immutable Parquet files of changed rows, their handles, and what replaces them."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.state.runs.evolution import SchemaChange as SchemaChange
    from milepost.state.runs.evolution import compare_schemas as compare_schemas
    from milepost.state.runs.evolution import evolve_schema as evolve_schema
    from milepost.state.runs.evolution import new_name_hint as new_name_hint
    from milepost.state.runs.evolution import widens as widens
    from milepost.state.runs.handles import RunHandle as RunHandle
    from milepost.state.runs.handles import RunKind as RunKind
    from milepost.state.runs.handles import StateHandle as StateHandle
    from milepost.state.runs.identity import CheckpointObjects as CheckpointObjects
    from milepost.state.runs.identity import StateIdentity as StateIdentity
    from milepost.state.runs.runs import decode_pieces as decode_pieces
    from milepost.state.runs.runs import decode_run as decode_run
    from milepost.state.runs.runs import encode_run as encode_run
else:
    __getattr__, __dir__ = lazy_exports(__name__)
