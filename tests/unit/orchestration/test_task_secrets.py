"""What a task's process knows and its log may not show (DESIGN 8)."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import redact

from pipeline.orchestration.base import JobOperator

TOKEN = "a-token-of-a-spark-connect-server"


class Telling(JobOperator):
    """A task whose work would print its environment."""

    def act(self, context: Any) -> str:
        return str(redact(f"token={TOKEN}"))


def test_the_token_of_the_spark_server_is_masked_in_a_task_s_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", TOKEN)
    assert TOKEN in str(redact(f"token={TOKEN}")), "nothing masks it by itself"
    assert Telling(task_id="tells", spec_path="none.yaml").execute({"ti": None}) == "token=***"
