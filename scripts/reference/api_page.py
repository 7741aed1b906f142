"""The reference page of `milepost.api`, from the signatures and docstrings of its exports."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import milepost.api
from milepost.api import CheckpointError, JobMaster
from milepost.jobspec.load.load import from_text
from scripts.reference.markdown import note

SPEC = """\
name: any
storage: {folder}/storage
sources:
  any: {{format: csv, path: "{folder}/*.csv", schema: {{k: int64}}}}
"""
_WIDTH = 100
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):[ \n]", re.MULTILINE)

INTRODUCTION = """\
Code outside Milepost may import the names below from `milepost.api`. Everything else may change in any version. A name
is imported when it is first used, so a script that only opens a store does not import anything else.

```python
from milepost.api import JobMaster, Session, load_job, spark_runner

job = JobMaster(load_job("orders"))             # config/orders.yaml, or a path
print(job.epochs.run(Session.cli(), spark_runner()).status)
print(job.reports.read("totals").to_pandas())
```
"""


def api_page() -> str:
    """Return the page."""
    errors = [name for name in sorted(dir(milepost.api)) if _is_error(getattr(milepost.api, name))]
    others = sorted(set(dir(milepost.api)) - {*errors}, key=_order)
    listed = ", ".join(f"`{name}`" for name in errors)
    parts = ["# Python API\n", note("`milepost.api`"), INTRODUCTION]
    parts += [part for name in others for part in _described(name, getattr(milepost.api, name))]
    parts += ["## Errors\n", f"{listed}: their meaning is described in [Errors](errors.md).\n"]
    return "\n".join(parts)


def subclasses(module: str, base: type) -> list[Any]:
    """Return the classes of a module that are the base or its subclasses, in the order of their lines."""
    return [
        kind
        for kind in vars(importlib.import_module(module)).values()
        if inspect.isclass(kind) and issubclass(kind, base)
    ]


def first_paragraph(thing: Any) -> str:
    """Return the first paragraph of the docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _order(name: str) -> tuple[int, str]:
    """Return the sort key of a name: functions first, then the job master, then records and contracts."""
    thing = getattr(milepost.api, name)
    return (2 if thing is not JobMaster else 1) if inspect.isclass(thing) else 0, name


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, CheckpointError)


def _described(name: str, thing: Any) -> Iterator[str]:
    if thing is JobMaster:
        yield f"## JobMaster\n\n{_text(thing)}"
        yield "`JobMaster(job: LoadedJob)`\n"
        for method, call in _use_cases().items():
            yield f"### {method}\n\n{_code(method, call)}\n\n{_text(call)}"
    elif inspect.isclass(thing):
        yield f"## {name}\n\n{_text(thing)}"
        if is_dataclass(thing):
            yield "**Fields**: " + ", ".join(f"`{field.name}: {field.type}`" for field in fields(thing)) + ".\n"
        for method, value in _public(thing).items():
            call = getattr(value, "__func__", value)
            if isinstance(value, property):
                yield f"`{method}`\n:   {first_paragraph(value)}\n"
            elif inspect.isfunction(call):
                yield f"{_code(method, call)}\n\n{_text(call)}"
    else:
        yield f"## {name}\n\n{_code(name, thing)}\n\n{_text(thing)}"


def _public(kind: type) -> dict[str, Any]:
    """Return the public members of a class and its bases that have a docstring."""
    found = {name: value for one in reversed(kind.__mro__[:-1]) for name, value in vars(one).items()}
    calls = (property, staticmethod, classmethod)
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("_")
        and (isinstance(value, calls) or inspect.isfunction(value))
        and inspect.getdoc(value)
    }


def _use_cases() -> dict[str, Callable[..., Any]]:
    """Return the use cases of a job by the name that callers write, such as `rollbacks.plan`, by group."""
    with tempfile.TemporaryDirectory() as folder:
        master = JobMaster(from_text(SPEC.format(folder=folder), Path(folder) / "any.yaml"))
        calls: dict[str, Callable[..., Any]] = {}
        for name, value in vars(JobMaster).items():
            if name.startswith("_"):
                continue
            if inspect.isfunction(value):
                calls[name] = value
                continue
            methods = vars(type(getattr(master, name))).items()
            calls |= {f"{name}.{method}": call for method, call in methods if _is_use_case(method, call)}
        return calls


def _is_use_case(name: str, value: Any) -> bool:
    return not name.startswith("_") and inspect.isfunction(value)


def _code(name: str, call: Callable[..., Any]) -> str:
    """Return the signature as in the source, without self, cls and decorators."""
    made = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(call)))).body[0]
    assert isinstance(made, ast.FunctionDef), name
    made.args.args = [argument for argument in made.args.args if argument.arg not in ("self", "cls")]
    arguments = ast.unparse(made.args)
    returned = f" -> {ast.unparse(made.returns)}" if made.returns is not None else ""
    line = f"{name}({arguments}){returned}"
    if len(line) > _WIDTH:
        each = "".join(f"\n    {argument}," for argument in _at_commas(arguments))
        line = f"{name}({each}\n){returned}"
    return f"```python\n{line}\n```"


def _at_commas(arguments: str) -> list[str]:
    """Return the arguments of a signature. A comma within brackets separates none."""
    parts = [""]
    for character in arguments:
        outside = parts[-1].count("[") == parts[-1].count("]")
        if character == "," and outside:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _text(thing: Any) -> str:
    """Return a docstring as Markdown: the titles of its sections are bold, and their items are a list."""
    text, *sections = _SECTION.split(inspect.getdoc(thing) or "")
    parts = [text.strip()]
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        lines = textwrap.dedent(body).strip("\n").splitlines()
        items = re.split(r"\n(?=\S)", "\n".join(lines)) if body.startswith(" ") else [body]
        parts.append(f"**{name}**\n\n" + "\n".join(map(_item, items)))
    return "\n\n".join(parts) + "\n"


def _item(text: str) -> str:
    """Return an item of a list. A name at its start becomes code."""
    return "* " + re.sub(r"^(\w+):", r"`\1`:", " ".join(text.split()))
