"""Detect SQL that would no longer reproduce the rows it must retract.

The SQL between an updating operator and its reader computes a retracted row again, possibly with another Spark, Java or
time zone database than the added row. The signatures of a checkpoint therefore record a digest of what that SQL returns
for pinned rows. The digest is compared before an epoch emits rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.errors import InvalidRequest
from milepost.jobspec.graph import recorded_answers, with_answers


@dataclass(frozen=True, slots=True)
class SparkAnswers:
    """Spark's answers to the SQL of one operator.

    Attributes:
        digest: digest of the answers.
        query_digest: digest of the SQL, of its input schema, and of the version and settings of Spark.
    """

    digest: str
    query_digest: str


def signed(signatures: Mapping[str, Any], answers: Mapping[str, SparkAnswers]) -> Mapping[str, Any]:
    """Return the signatures of a checkpoint with the answers of its epoch, by the uid of the SQL."""
    return (
        with_answers(signatures, {uid: (one.digest, one.query_digest) for uid, one in answers.items()})
        if answers
        else signatures
    )


def recorded_by(signatures: Mapping[str, Any]) -> dict[str, dict[str, SparkAnswers]]:
    """Return the answers in a checkpoint's signatures: per operator, by the uid of the SQL upstream of it."""
    return {
        uid: {sql: SparkAnswers(*digests) for sql, digests in recorded_answers(operator).items()}
        for uid, operator in signatures.get("operators", {}).items()
    }


def check_answers(
    job: str, recorded: Mapping[str, Mapping[str, SparkAnswers]], answers: Mapping[str, SparkAnswers]
) -> None:
    """Compare the answers of this epoch with the recorded ones.

    Args:
        recorded: per operator with state, the answers by the uid of the SQL upstream of it.
    Raises: InvalidRequest: an operator's state has rows that the SQL upstream of it would not reproduce.
    """
    for uid, by_sql in recorded.items():
        for sql, before in by_sql.items():
            now = answers.get(sql)
            if now is not None and now.digest != before.digest:
                raise InvalidRequest(
                    f"operator {uid}: its state has rows computed by the SQL of {sql}, which this Spark evaluates "
                    f"differently: the digest of its results was {before.digest} and is {now.digest}. A retraction "
                    "would no longer match the row that was added. Nothing was published.",
                    hint=f"run the job on the previous Spark, Java and settings; or assign new uids to {uid} and all "
                    f"operators downstream of it; or rebuild the state: milepost backfill {job} --from-checkpoint 0",
                    uid=uid,
                )
