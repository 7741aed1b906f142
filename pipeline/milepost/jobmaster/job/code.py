"""The code of one epoch: this package and the job's process functions at the trigger (I13).

The trigger reads the code, and so does each try in another process. A module edited between two epochs runs in its new
form in the next epoch, even in a long-lived process. A module edited between trigger and try declines the epoch. A
backfill runs the code of its plan to the end.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, code_by_name, code_hash_of
from milepost.errors import InvalidRequest, SubtaskDeclined
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import JobGraph
from milepost.operators.process import (
    ProcessFunction,
    ProcessOperator,
    UserCodeFailed,
    UserFunction,
    declare,
    read_function,
)
from milepost.protocol.records import CheckpointFailureReason, PendingCheckpoint


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """The job with its process functions loaded.

    Attributes:
        functions: by uid of the operator. graph: with the columns that the functions declare, all checked.
    """

    functions: Mapping[str, ProcessFunction]
    graph: JobGraph


@dataclass(frozen=True, slots=True)
class JobCode:
    """The source code that would run now. None of it was executed.

    Attributes:
        functions: code of each process operator, by uid. hash: over all of them and this package.
    """

    functions: Mapping[str, UserFunction]
    hash: str

    def load(self, context: JobContext) -> LoadedCode:
        """Load every class and check the job against its declarations.

        Raises:
            InvalidRequest: a module raises, a class is not a process function, or the spec contradicts its declaration.
        """
        loaded = {}
        for uid, function in self.functions.items():
            operator = context.job.spec.operator(uid)
            assert isinstance(operator, ProcessOperator)
            try:
                # Commands write data to stdout, so the output of a module that prints on import goes to stderr.
                with contextlib.redirect_stdout(sys.stderr):
                    process_class = function.load()
            except UserCodeFailed as error:
                raise InvalidRequest(
                    f"operator {uid}: the function {operator.function} cannot be loaded: {error}. Nothing was written.",
                    hint="correct the module, or `function`",
                ) from error
            loaded[uid] = ProcessFunction(function, declare(uid, operator.key, process_class))
        if not loaded:
            return LoadedCode({}, context.graph)
        return LoadedCode(loaded, context.job.graph({uid: item.declared.output for uid, item in loaded.items()}))


def read_code(context: JobContext) -> JobCode:
    """Read the current code of the job's process functions. Raises InvalidRequest: a module is missing."""
    functions = {
        operator.uid: read_function(operator.uid, operator.function, context.job.module_dir)
        for operator in context.job.spec.operators
        if isinstance(operator, ProcessOperator)
    }
    return JobCode(functions, code_hash_of({uid: function.digest for uid, function in functions.items()}))


def read_recorded_code(context: JobContext, pending: PendingCheckpoint) -> JobCode:
    """Read the code and compare it with the trigger's record. Raises SubtaskDeclined with CODE_MISMATCH."""
    try:
        code = read_code(context)
        actual = f"this process has code {code.hash[:12]}"
    except InvalidRequest as error:
        code, actual = None, error.message
    if code is not None and code.hash == pending.code_hash:
        return code
    raise SubtaskDeclined(
        f"checkpoint {pending.checkpoint_id}: the code changed after the epoch was triggered: the trigger recorded "
        f"{pending.code_hash[:12]}, {actual}. Nothing was run or published.",
        hint="run a new epoch: it uses the current code",
        reason=CheckpointFailureReason.CODE_MISMATCH.value,
    )


def code_differences(context: JobContext, metadata: CheckpointMetadata) -> list[str] | None:
    """List what differs between a checkpoint's code and the current code; None if the code was not recorded.

    Example: `["clean.normalize: changed", "enrich: new"]`.
    """
    if not metadata.code:
        return None
    try:
        functions = read_code(context).functions
    except InvalidRequest as error:
        return [error.message]
    current = code_by_name({uid: function.modules() for uid, function in functions.items()})
    lines = []
    for name in sorted({*metadata.code, *current}):
        if name not in current:
            lines.append(f"{name}: gone")
        elif name not in metadata.code:
            lines.append(f"{name}: new")
        elif current[name] != metadata.code[name]:
            lines.append(f"{name}: changed")
    return lines


def check_recorded_spec(context: JobContext, pending: PendingCheckpoint) -> None:
    """Compare the spec with the trigger's record. Raises SubtaskDeclined with CODE_MISMATCH."""
    if context.job.spec_hash != pending.spec_hash:
        raise SubtaskDeclined(
            f"checkpoint {pending.checkpoint_id}: the spec changed after the epoch was triggered: the trigger recorded "
            f"{pending.spec_hash[:12]}, it now is {context.job.spec_hash[:12]}. Nothing was run or published.",
            hint="run a new epoch: it uses the current spec",
            reason=CheckpointFailureReason.CODE_MISMATCH.value,
        )
