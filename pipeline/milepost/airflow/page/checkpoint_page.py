"""The page of one checkpoint: where the time of its epoch went, what came in, what the gate refused."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

from milepost.airflow.page.job_page import OpenedJob
from milepost.protocol.codec.records import to_json

router = APIRouter()


@router.get("/checkpoints/{checkpoint_id}")
def checkpoint(at: OpenedJob, checkpoint_id: Annotated[int, Path(ge=1)]) -> HTMLResponse:
    """One checkpoint in full."""
    document: dict[str, Any] = to_json(at.master().show(checkpoint_id))
    phases = dict(document.get("phases") or {})
    total_ms = phases.pop("total_ms", None)
    return at.render(
        "checkpoint.html",
        "checkpoints",
        checkpoint=document,
        phases=[(name.removesuffix("_ms"), spent) for name, spent in phases.items() if spent is not None],
        total_ms=total_ms,
        longest_ms=max((spent for spent in phases.values() if spent is not None), default=0) or 1,
        tasks=document.get("tasks") or [],
    )
