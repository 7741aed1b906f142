"""Spec of the `process` operator: run a user's class."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from milepost.jobspec.job.operators.keyed import KeyColumns
from milepost.language import Function, Many, NodeName, SpecModel


class ProcessOperator(SpecModel):
    """Runs a user's class on the rows of one key at a time, from one or more inputs, with keyed state and timers.

    Attributes:
        uid: name of the operator, under which its state is stored: `[a-z][a-z0-9_]{0,62}` without `__`.
        renamed_from: the uid under which earlier checkpoints store its state.
        inputs: names of sources and operators whose rows are append. The same name twice passes its rows twice.
        key: key columns, each once. Every input must have them, under these names.
        function: `module:Class`. The module is in the spec's folder or installed.
        output_key: key columns of the class's `output`, which must include `key`. A row replaces the previous row with
            the same output key, so the output is updates, for an upsert or changelog sink. null: rows are final
            (append).
    """

    uid: NodeName
    kind: Literal["process"]
    renamed_from: NodeName | None = None
    inputs: Annotated[Many[NodeName], Field(min_length=1)]
    key: KeyColumns
    function: Function
    output_key: KeyColumns | None = None
