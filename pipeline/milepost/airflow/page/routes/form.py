"""The page of a filled-in form, and how to pass it to Airflow's trigger dialog.

Airflow's trigger dialog has no URL and reads no query parameters, so no link can fill it in. It does accept JSON under
its advanced options. This page shows that JSON and its values, and warns if the first task would refuse them.
"""

from __future__ import annotations

import json
from copy import copy
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from milepost.acts import ACTS, ROLLBACK
from milepost.airflow.operate.form import operate_form, parse_form
from milepost.airflow.operators import forms
from milepost.airflow.operators.dag_ids import operate_dag_id
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from airflow.sdk import Param

router = APIRouter()

_PAGE_PARAMETERS = ("job",)

_MAX_DIGITS = 18
"""Digits of the longest number that a field accepts. `int` raises ValueError for thousands of digits."""


@router.get("/form")
def form(job_page: OpenedJob, request: Request) -> HTMLResponse:
    """Show the form, filled in from the query parameters. With an act alone, its fields have their defaults."""
    params = operate_form(job_page.loaded)
    texts = {name: text for name, text in request.query_params.items() if name not in _PAGE_PARAMETERS}
    values = {name: _parse_value(params.get(name), text) for name, text in texts.items()}
    act = ACTS.get(str(values.get(forms.WHAT)))
    refused = _refused(job_page, params, values)
    act_fields = [] if act is None else list(act.form_fields)
    is_blank = bool(act_fields) and list(values) == [forms.WHAT]
    if is_blank:
        values |= {name: params[name].value for name in act_fields}
    return job_page.render(
        "form.html",
        "form",
        operate=operate_dag_id(job_page.name),
        title="" if act is None else act.title,
        needs_approval=act is not None and act.needs_approval,
        fields=[
            (params[name].schema["title"], name, value, params[name].description)
            for name, value in values.items()
            if name in params and name != forms.WHAT
        ],
        configuration=json.dumps(values, indent=2),
        is_blank=is_blank,
        goes_back=act is ROLLBACK,
        refused=refused,
    )


def _refused(job_page: OpenedJob, params: dict[str, Param], values: dict[str, Any]) -> str:
    """Return why the first task would refuse these values; "" if it would accept them."""
    defaults = {name: param.value for name, param in params.items() if name != forms.WHAT}
    for name, value in values.items():
        if name in defaults and not _is_valid(params[name], value):
            return f"field {name} does not accept {value!r}: {params[name].description}"
    try:
        parse_form(defaults | values, job_page.loaded)
    except InvalidRequest as error:
        return error.message
    return ""


def _parse_value(param: Param | None, text: str) -> Any:
    """Return a query parameter as the type of its field; the text itself if it is not of that type."""
    types = [] if param is None else param.schema["type"]
    if "boolean" in types and text in ("true", "false"):
        return text == "true"
    return int(text) if "integer" in types and text.isdecimal() and len(text) <= _MAX_DIGITS else text


def _is_valid(param: Param, value: Any) -> bool:
    from airflow.sdk.exceptions import ParamValidationError

    try:
        copy(param).resolve(value)
    except ParamValidationError:
        return False
    return True
