"""The page of a form, filled in: what an act is asked with, and how to hand that to Airflow's own dialog.

Airflow's trigger dialog has no address and reads no query, so no link fills it. What fills it is JSON, under its
advanced options: this page has that, its values in words, and says beforehand what the first task would refuse.
"""

from __future__ import annotations

import json
from copy import copy
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from milepost.airflow.operate.registry import ACTS, asked, operate_form
from milepost.airflow.operate.rollback import ROLLBACK
from milepost.airflow.operators import forms
from milepost.airflow.operators.job_specs import operate_dag_id
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from airflow.sdk import Param

router = APIRouter()

_OF_THE_PAGE = ("job",)

_DIGITS = 18
"""Of the longest number that a field takes; Python refuses to read one of thousands."""


@router.get("/form")
def form(at: OpenedJob, request: Request) -> HTMLResponse:
    """A form of the job, filled in with what stands in the address; of an act alone, its fields as they are preset."""
    params = operate_form(at.loaded)
    given = {name: text for name, text in request.query_params.items() if name not in _OF_THE_PAGE}
    values = {name: _typed(params.get(name), text) for name, text in given.items()}
    act = ACTS.get(str(values.get(forms.WHAT)))
    refused = _refused(at, params, values)
    own = [] if act is None else [act.field(short) for short in act.fields(at.loaded)]
    blank = bool(own) and list(values) == [forms.WHAT]
    if blank:
        values |= {name: params[name].value for name in own}
    return at.render(
        "form.html",
        "form",
        operate=operate_dag_id(at.name),
        title="" if act is None else act.title,
        asks=act is not None and act.asks,
        fields=[
            (params[name].schema["title"], name, value, params[name].description)
            for name, value in values.items()
            if name in params and name != forms.WHAT
        ],
        configuration=json.dumps(values, indent=2),
        blank=blank,
        goes_back=act is ROLLBACK,
        refused=refused,
    )


def _refused(at: OpenedJob, params: dict[str, Param], values: dict[str, Any]) -> str:
    """Return why the first task would refuse these values; "" when it would not."""
    presets = {name: param.value for name, param in params.items() if name != forms.WHAT}
    for name, value in values.items():
        if name in presets and not _fits(params[name], value):
            return f"field {name}: {value!r} is not what it takes: {params[name].description}"
    try:
        asked(presets | values, at.loaded)
    except InvalidRequest as error:
        return error.message
    return ""


def _typed(param: Param | None, text: str) -> Any:
    """Return a value of an address as its field has it."""
    kinds = [] if param is None else param.schema["type"]
    if "boolean" in kinds and text in ("true", "false"):
        return text == "true"
    return int(text) if "integer" in kinds and text.isdecimal() and len(text) <= _DIGITS else text


def _fits(param: Param, value: Any) -> bool:
    from airflow.sdk.exceptions import ParamValidationError

    try:
        copy(param).resolve(value)
    except ParamValidationError:
        return False
    return True
