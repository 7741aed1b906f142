"""The part of a spec that runs a user's class."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from milepost.spec.job.operators.keyed import KeyColumns
from milepost.spec.values.fields import Function, Many, NodeName, SpecModel


class ProcessOperator(SpecModel):
    """A user's class that sees the rows of one key at a time, of one input or several, with state and timers of it.

    Attributes:
        uid: the operator's name, under which its state is kept: `[a-z][a-z0-9_]{0,62}` without `__`.
        renamed_from: the uid under which earlier checkpoints have its state.
        inputs: names of sources and operators, whose rows are append, never updates. One name twice gives its rows
            twice.
        key: columns that each input has under these names, each once.
        function: `module:Class`; the module lies beside the spec or is installed.
        output_key: columns of the class's `output`, those of `key` among them, by which a row replaces the last one:
            the output is updates, which an upsert sink or a changelog takes. null: a row is final (append).
    """

    uid: NodeName
    kind: Literal["process"]
    renamed_from: NodeName | None = None
    inputs: Annotated[Many[NodeName], Field(min_length=1)]
    key: KeyColumns
    function: Function
    output_key: KeyColumns | None = None
