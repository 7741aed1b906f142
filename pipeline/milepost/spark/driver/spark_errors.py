"""Translate Spark errors into typed refusals that name the failed SQL operator.

Spark reports a condition (`CAST_INVALID_INPUT`) and the SQL fragment that failed, with its start index. The operator is
the one with that fragment at that index of its expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, PythonException

from milepost.errors import EnvironmentUnusable, SubtaskDeclined
from milepost.protocol.records import CheckpointFailureReason, CheckpointId
from milepost.spark.task.row_steps.sql_expression import SqlExpression

_PLACE = re.compile(r";? line \d+,? pos(?:ition)? \d+;?\s*$")
"""Position in the generated expression, which the user has never seen: `; line 1 pos 42`."""

_WIDE_COLUMN = re.compile(r"(`?)\bn_\w+\1\.")
"""Qualifier of an input's columns in generated SQL: `n_clicks.` in `n_clicks.user`."""

_NO_ROOM = "UNABLE_TO_ACQUIRE_MEMORY"

_DISK_FULL = re.compile(
    r"java\.(?:io\.IOException|nio\.file\.FileSystemException): "
    r"[^\n]*?(No space left on device|Disk quota exceeded|File too large)"
)
"""Reported for files that Spark writes. A Python worker reports its own failed writes."""

_FOR_LARGE_ROWS = (
    "A row that a task passes on has to fit into its share of the JVM's memory: raise `spark.driver.memory` in "
    "`spark.conf`, lower `spark.buffer_size`, or set `spark.shuffle.sort.bypassMergeThreshold` to 200 there: slower, "
    "and without that need."
)


def refusal(
    checkpoint_id: CheckpointId, error: PySparkException, expressions: Sequence[SqlExpression]
) -> SubtaskDeclined:
    """Return the typed refusal for a Spark error.

    Args:
        checkpoint_id: checkpoint of the epoch.
        error: the error that Spark raised.
        expressions: expressions of the SQL operators that may have failed.
    """
    condition = error.getCondition() or ""
    text = _own_words(_first_line(error))
    if not isinstance(error, AnalysisException) and (_is_of_a_task(error) or not condition):
        reason, what = CheckpointFailureReason.TASK_FAILURE, f"a Spark task failed too often: {text}"
    else:
        fragment, uids = _blamed(error, expressions)
        who = f"operator {uids[0]}: its SQL" if len(uids) == 1 else f"the SQL of {' or '.join(uids) or 'the job'}"
        where = f" {_unqualified(fragment)}" if fragment else ""
        reason, what = CheckpointFailureReason.SQL_ERROR, f"{who}{where} failed: {text}"
    return SubtaskDeclined(
        f"checkpoint {checkpoint_id}: {what} Nothing of this epoch is visible.",
        hint=_remedy(reason, text),
        reason=reason.value,
        condition=condition,
        detail=what,
        checkpoint_id=checkpoint_id,
    )


def crash(checkpoint_id: CheckpointId, error: Py4JJavaError) -> SubtaskDeclined:
    """Return the typed refusal for a job that the JVM failed: lost workers, memory, a cancelled stage."""
    reason = CheckpointFailureReason.TASK_FAILURE
    what = f"the Spark job failed: {_own_words(str(error.java_exception.getMessage()).splitlines()[0])}"
    return SubtaskDeclined(
        f"checkpoint {checkpoint_id}: {what} Nothing of this epoch is visible.",
        hint=_remedy(reason, what),
        reason=reason.value,
        detail=what,
        checkpoint_id=checkpoint_id,
    )


def full_disk(checkpoint_id: CheckpointId, error_text: str) -> EnvironmentUnusable | None:
    """Return the typed refusal for a disk that is too full for Spark's shuffle. None: the error has another cause.

    Args:
        error_text: the text of Spark's error.
    """
    match = _DISK_FULL.search(error_text)
    if match is None:
        return None
    return EnvironmentUnusable(
        f"checkpoint {checkpoint_id}: a disk cannot store Spark's shuffle files: {match[1]}. Nothing of this epoch is "
        "visible.",
        hint="free space there, or name a folder on another disk: `spark.local.dir` below `spark.conf`, or "
        "SPARK_LOCAL_DIRS of a cluster's workers; without either it is the machine's temporary folder",
        checkpoint_id=checkpoint_id,
    )


def _remedy(reason: CheckpointFailureReason, text: str) -> str:
    return f"{_FOR_LARGE_ROWS} {reason.remedy}" if _NO_ROOM in text else reason.remedy


def _is_of_a_task(error: PySparkException) -> bool:
    return isinstance(error, PythonException) or (error.getCondition() or "").startswith("FAILED_")


def _blamed(error: PySparkException, expressions: Sequence[SqlExpression]) -> tuple[str, list[str]]:
    """Return the failed fragment and the operators with it at that index of their expression; else "" and all."""
    for context in error.getQueryContext():
        fragment, start = context.fragment(), context.startIndex()
        texts = (
            (expression.uid, text)
            for expression in expressions
            for text in (expression.text, expression.list_sql or "")
        )
        uids = [uid for uid, text in texts if fragment and text.startswith(fragment, start)]
        if uids:
            return fragment, list(dict.fromkeys(uids))
    return "", list(dict.fromkeys(expression.uid for expression in expressions))


def _own_words(text: str) -> str:
    text = _unqualified(_PLACE.sub("", text).strip())
    return text if text.endswith(".") else f"{text}."


def _unqualified(sql: str) -> str:
    return _WIDE_COLUMN.sub("", sql)


def _first_line(error: PySparkException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
