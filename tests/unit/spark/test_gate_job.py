"""The gate in tasks: a worker that has no room for the library says what to set, not that it is installed wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.epoch.gate_shares import GateRow, GateShare, refusal_row
from milepost.errors import EnvironmentUnusable
from milepost.jobspec.job.spec import QualitySpec
from milepost.protocol.exchange.acknowledgements import decode_answer
from milepost.protocol.exchange.barrier import SubtaskIdentity
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.spark.driver.gate_job import _sent
from milepost_testkit import wording

SUITE = {"sink": "totals", "expectations": [{"type": "expect_column_to_exist", "column": "k"}]}
SHARE = GateShare(QualitySpec.model_validate(SUITE), (), StoreConfig("file:///nowhere"), "", (), 0, 0)
IDENTITY = SubtaskIdentity(CheckpointId(1), FencingToken(1), 2, 0)


def declined(cause: Exception) -> Decline:
    """What a task answers whose library cannot be imported."""

    def rows() -> Iterator[GateRow]:
        raise EnvironmentUnusable("cannot load Great Expectations", hint="install what fits together") from cause
        yield

    (batch,) = _sent(rows(), lambda error: refusal_row(IDENTITY, SHARE, error))
    answer = decode_answer(batch["payload"][0].as_py().decode())
    assert isinstance(answer, Decline) and answer.reason is CheckpointFailureReason.ENVIRONMENT_UNUSABLE
    return answer


def test_a_worker_without_room_for_the_library_says_what_to_set() -> None:
    """Its loader says of a part of the library that it cannot be mapped: 512m are too little."""
    short = declined(ImportError("scipy/linalg/_flapack.so: failed to map segment from shared object"))
    wording.matches("declines", short.detail)
    assert "spark.executor.pyspark.memory" in str(short.payload["hint"])
    missing = declined(ImportError("cannot import name 'x' from 'marshmallow'"))
    assert "cannot load Great Expectations" in missing.detail and missing.payload == {
        "hint": "install what fits together"
    }
