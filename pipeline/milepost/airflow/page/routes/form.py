"""The form of an act: its fields, filled in from the URL, and the button that triggers the plan.

Without the script, the button loads the page again with the typed values, and the page shows them as JSON for Airflow's
own trigger dialog, which no link can fill in. The page warns of values that the first task would refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from milepost.acts import ACTS, ROLLBACK, Act
from milepost.airflow.operate.form import operate_form, parse_form
from milepost.airflow.operators import forms
from milepost.airflow.operators.dag_ids import operate_dag_id
from milepost.airflow.page.frame.api_calls import ApiCall, trigger_call
from milepost.airflow.page.frame.rendering import Links
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from airflow.sdk import Param

router = APIRouter()

_PAGE_PARAMETERS = ("job",)

_MAX_DIGITS = 18
"""Digits of the longest number that a field accepts. `int` raises ValueError for thousands of digits."""


@dataclass(frozen=True, slots=True)
class FormInput:
    """An input of the form. type: of its JSON value. choices: the allowed values; () if any text may be typed."""

    name: str
    title: str
    meaning: str
    type: str
    value: Any
    choices: tuple[str, ...]
    is_required: bool


@router.get("/form")
@router.get("/form.json")
def form(job_page: OpenedJob, request: Request) -> Response:
    """Show the form of an act, filled in from the query parameters; without an act, the list of all acts."""
    params = operate_form(job_page.loaded)
    texts = {name: text for name, text in request.query_params.items() if name not in _PAGE_PARAMETERS and text}
    values = {name: _parse_value(params.get(name), text) for name, text in texts.items()}
    act = ACTS.get(str(values.get(forms.WHAT)))
    refused = _refused(job_page, params, values) if values else ""
    act_fields = [] if act is None else list(act.form_fields)
    is_blank = bool(act_fields) and list(values) == [forms.WHAT]
    if is_blank:
        values |= {name: params[name].value for name in act_fields}
    refused = "" if is_blank else refused
    links, operate = Links.of(request), operate_dag_id(job_page.name)
    inputs = [] if act is None else list(_inputs(act, params, values))
    trigger = None if act is None else trigger_call(links, operate, job_page.name, {forms.WHAT: act.name})
    is_allowed = job_page.rights.may_trigger(operate)
    return job_page.render(
        "form.html",
        "form",
        document={
            "acts": [_act(one) for one in (ACTS.values() if act is None else [act])],
            "dag_id": operate,
            "inputs": inputs,
            "values": values,
            "refused": refused or None,
            "trigger": None if trigger is None or not is_allowed else _request(trigger, values),
        },
        operate=operate,
        act=act,
        acts=list(ACTS.values()),
        inputs=inputs,
        trigger=trigger,
        is_allowed=is_allowed,
        configuration=json.dumps(values, indent=2),
        goes_back=act is ROLLBACK,
        refused=refused,
    )


def _act(act: Act[Any]) -> dict[str, Any]:
    return {"name": act.name, "title": act.title, "summary": act.summary, "needs_approval": act.needs_approval}


def _request(call: ApiCall, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request to Airflow's REST API that triggers the plan, with these values of the form."""
    return {"method": call.method, "url": call.url, "body": {**call.fields, "conf": dict(values)}}


def _inputs(act: Act[Any], params: Mapping[str, Param], values: Mapping[str, Any]) -> Iterator[FormInput]:
    """Yield the inputs of an act's fields, and of the options of the run."""
    options = [forms.APPROVE, forms.DRY_RUN] if act.needs_approval else [forms.DRY_RUN]
    required = {name for name, field in act.form_fields.items() if field.required}
    for name in (*act.form_fields, *options):
        param = params[name]
        types = param.schema["type"]
        yield FormInput(
            name,
            param.schema["title"],
            param.description or "",
            next(kind for kind in ([types] if isinstance(types, str) else types) if kind != "null"),
            values.get(name, param.value),
            tuple(choice for choice in param.schema.get("enum", ()) if choice is not None),
            name in required,
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
    from milepost.airflow.compat import ParamValidationError

    try:
        copy(param).resolve(value)
    except ParamValidationError:
        return False
    return True
