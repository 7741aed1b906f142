"""Spark's answers to SQL are signed with state that takes rows back, and compared before an epoch makes any.

A row that is taken back is made anew by the SQL between its producer and its reader: perhaps by another Spark, Java or
time zone data than the row that was added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.errors import InvalidRequest
from milepost.jobspec.graph import recorded_answers, with_answers


@dataclass(frozen=True, slots=True)
class SparkAnswers:
    """What Spark answered to the SQL of one operator.

    Attributes:
        digest: of the answers. asked: of what was asked, and of what Spark.
    """

    digest: str
    asked: str


def signed(signatures: Mapping[str, Any], answers: Mapping[str, SparkAnswers]) -> Mapping[str, Any]:
    """Return the signatures of a checkpoint with the answers, by the uid of the SQL, that its epoch got."""
    return (
        with_answers(signatures, {uid: (one.digest, one.asked) for uid, one in answers.items()})
        if answers
        else signatures
    )


def recorded_by(signatures: Mapping[str, Any]) -> dict[str, dict[str, SparkAnswers]]:
    """Return the answers in the signatures of a checkpoint: per operator, by the uid of the SQL before it."""
    return {
        uid: {sql: SparkAnswers(*said) for sql, said in recorded_answers(operator).items()}
        for uid, operator in signatures.get("operators", {}).items()
    }


def check_answers(
    job: str, recorded: Mapping[str, Mapping[str, SparkAnswers]], answers: Mapping[str, SparkAnswers]
) -> None:
    """Raises InvalidRequest: an operator's state has rows that SQL before it would not make again.

    Args:
        recorded: per operator with state.
    """
    for uid, said in recorded.items():
        for sql, before in said.items():
            now = answers.get(sql)
            if now is not None and now.digest != before.digest:
                raise InvalidRequest(
                    f"operator {uid}: its state has rows that the SQL of {sql} made, and this Spark gives other "
                    f"answers to it: they were {before.digest}, are {now.digest}. A row that is taken back would not "
                    "be the row that was added. Nothing was published.",
                    hint=f"run the job on the Spark, Java and settings of before; or give {uid} and all operators "
                    f"behind it new uids; or make the state anew: milepost backfill {job} --from-checkpoint 0",
                    uid=uid,
                )
